"""PodMonitor of the Prometheus operator, as far as the chart needs it, for the API server to check with."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_EXPRESSION = {
    "type": "object",
    "properties": {"key": _TEXT, "operator": _TEXT, "values": _TEXTS},
    "required": ["key", "operator"],
}
_SELECTOR = {
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": _TEXT},
        "matchExpressions": {"type": "array", "items": _EXPRESSION},
    },
}
_UNITS = ("y", "w", "d", "h", "m", "s", "ms")
_DURATION = {"type": "string", "pattern": f"^(0|{''.join(f'([0-9]+{unit})?' for unit in _UNITS)})$"}
_ENDPOINT = {
    "type": "object",
    "properties": {"port": _TEXT, "path": _TEXT, "scheme": _TEXT, "interval": _DURATION},
}
_SPEC = {
    "type": "object",
    "properties": {
        "jobLabel": _TEXT,
        "podTargetLabels": _TEXTS,
        "selector": _SELECTOR,
        "namespaceSelector": {
            "type": "object",
            "properties": {"any": {"type": "boolean"}, "matchNames": _TEXTS},
        },
        "podMetricsEndpoints": {"type": "array", "items": _ENDPOINT},
    },
    "required": ["selector"],
}
POD_MONITORS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _SPEC},
                        "required": ["spec"],
                    }
                },
            }
        ],
    },
}
"""Fields and types as release 0.87 has them; a field that is not here is refused."""
