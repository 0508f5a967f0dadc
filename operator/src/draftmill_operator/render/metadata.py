"""Metadata that every child carries: labels, owner, annotations."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from draftmill_api import names as api_names
from draftmill_operator.render.names import run_label
from draftmill_operator.run import Role, RunIdentity

Manifest = dict[str, Any]
"""A child as JSON, ready to be applied."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def labels(run: RunIdentity, role: Role) -> dict[str, str]:
    """Labels of a child. None is copied from the run: Argo's and Helm's tracking labels must not spread."""
    return {
        MANAGED_BY: "draftmill",
        api_names.LABEL_KIND: run.key.kind.lower(),
        api_names.LABEL_ROLE: role.value,
        api_names.LABEL_RUN: run_label(run.key),
        api_names.LABEL_RUN_UID: run.uid,
    }


def selector(run: RunIdentity, role: Role) -> dict[str, str]:
    """The least labels that pick exactly one run's pods of one role."""
    return {api_names.LABEL_RUN_UID: run.uid, api_names.LABEL_ROLE: role.value}


def owner_reference(run: RunIdentity) -> Manifest:
    """The reference by which garbage collection removes the child with its run."""
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": run.key.kind,
        "name": run.key.name,
        "uid": run.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(run: RunIdentity, role: Role, name: str, extra_labels: dict[str, str] | None = None) -> Manifest:
    """Metadata of a child object."""
    return {
        "name": name,
        "namespace": run.key.namespace,
        "labels": labels(run, role) | (extra_labels or {}),
        "annotations": {api_names.ANNOTATION_RUN_NAME: run.key.name},
        "ownerReferences": [owner_reference(run)],
    }


def content_hash(value: Any) -> str:
    """Identity of a JSON value, whatever the order of its keys: 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its own hash as an annotation, by which a later pass sees whether it changed."""
    annotations = manifest["metadata"]["annotations"] | {
        api_names.ANNOTATION_APPLIED_HASH: content_hash(manifest)
    }
    return manifest | {"metadata": manifest["metadata"] | {"annotations": annotations}}
