"""SynthRun objects for tests of the API, and what all kinds of run share there."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from draftmill_api import names
from draftmill_api.v1alpha1.resources import RESOURCES

Manifest = dict[str, Any]
_PLURALS = {resource.kind: resource.plural for resource in RESOURCES}

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


def manifests(file: Path) -> list[Manifest]:
    """The objects that a YAML file holds."""
    return list(yaml.safe_load_all(file.read_text()))


def dry_run(objects: Any, manifest: Manifest) -> Manifest:
    """Tries to create a run, as `kubectl create --dry-run=server` does; returns what would be stored."""
    return dict(
        objects.create_namespaced_custom_object(
            names.GROUP,
            names.VERSION,
            "default",
            _PLURALS[manifest["kind"]],
            manifest,
            dry_run="All",
            field_validation="Strict",
        )
    )


def smallest_synth_run(name: str) -> Manifest:
    """A SynthRun with nothing but the fields that must be given."""
    return {
        "apiVersion": "draftmill.dev/v1alpha1",
        "kind": "SynthRun",
        "metadata": {"name": name},
        "spec": copy.deepcopy(_SPEC),
    }
