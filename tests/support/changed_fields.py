"""A run on a real API server whose fields are changed, one entry of the mutability table after the other."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client

from draftmill_api.v1alpha1.mutability import Change, Field
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.synthruns import Manifest


@dataclass(frozen=True)
class ChangedRun:
    """One run; `changes` holds a change of each entry, by its path.

    Attributes:
        beside: An entry whose change needs that of a field beside it: it is one of the whole spec.
    """

    objects: Any
    address: tuple[str, str, str, str]
    name: str
    changes: Manifest
    beside: str

    def try_all(self, fields: Iterable[Field], *, active: bool) -> None:
        """Change each entry by itself: refused with its sentence are those that an active run keeps."""
        for field in fields:
            if not (active and field.change is Change.REFUSED):
                self._change(field)
                continue
            with pytest.raises(client.ApiException) as refused:
                self._change(field)
            assert f"spec.{field.path} cannot be changed while the run is active" in str(refused.value.body)

    def _change(self, field: Field) -> None:
        run = self.objects.get_namespaced_custom_object(*self.address, self.name)
        parent, _, name = field.path.rpartition(".")
        value = self.changes[field.path]
        change = value if field.path == self.beside else {name: value}
        run["spec"] = merged(run["spec"], {parent: change} if parent else change)
        self.objects.replace_namespaced_custom_object(*self.address, self.name, run, dry_run="All")


@contextmanager
def changed_run(
    control_plane: ControlPlane,
    plural: str,
    manifest: Manifest,
    *,
    status: Manifest,
    changes: Manifest,
    beside: str,
) -> Iterator[ChangedRun]:
    """A run with this status, as long as the block."""
    objects = kube.connect(control_plane.kubeconfig, "default").objects
    address, name = ("draftmill.dev", "v1alpha1", "default", plural), manifest["metadata"]["name"]
    objects.create_namespaced_custom_object(*address, manifest)
    if status:
        objects.patch_namespaced_custom_object_status(*address, name, {"status": status})
    yield ChangedRun(objects, address, name, changes, beside)
    objects.delete_namespaced_custom_object(*address, name)


def merged(old: Any, change: Any) -> Any:
    """JSON merge patch; lists are replaced."""
    if not isinstance(old, dict) or not isinstance(change, dict):
        return copy.deepcopy(change)
    result = old | {name: merged(old.get(name), value) for name, value in change.items()}
    return {name: value for name, value in result.items() if value is not None}
