"""SynthRun objects for tests of the API."""

from __future__ import annotations

import copy
from typing import Any

Manifest = dict[str, Any]

_SPEC: Manifest = {
    "model": {"name": "kimi-k2.5", "path": "kimi-k2.5-int4"},
    "storage": {
        "models": {"persistentVolumeClaim": {"claimName": "models"}},
        "data": {"persistentVolumeClaim": {"claimName": "data"}},
    },
    "server": {"engine": "SGLang", "image": "lmsysorg/sglang:v0.5.23"},
    "output": {"path": "prepared"},
    "datasets": [{"name": "B1_glaive", "source": {"file": {"path": "prompts/glaive.jsonl"}}}],
}


def smallest_synth_run(name: str) -> Manifest:
    """A SynthRun with nothing but the fields that must be given."""
    return {
        "apiVersion": "draftmill.dev/v1alpha1",
        "kind": "SynthRun",
        "metadata": {"name": name},
        "spec": copy.deepcopy(_SPEC),
    }
