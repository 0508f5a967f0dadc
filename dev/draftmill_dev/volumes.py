"""Folders of this machine as volume claims: models, data, and the model server's environment.

Pods under the restricted profile may not mount folders of their node, but they
may use claims that are bound to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill_dev.kubectl import Kubectl, Manifest

MODELS = "models"
DATA = "data"
ENVIRONMENT = "server-environment"
JOB_USER = 65532
_BOUND_WITHIN = "60s"


@dataclass(frozen=True)
class Folder:
    """A folder that becomes a claim.

    Attributes:
        claim: Name of the claim.
        path: The folder on the node.
        writable: Whether pods may write.
    """

    claim: str
    path: Path
    writable: bool


def lay_out(root: Path, models: Path, environment: Path) -> tuple[Folder, ...]:
    """Makes the three folders of a local cluster.

    Models and environment are links, so that a claim keeps its path when another version is built.

    Args:
        root: Where they go.
        models: Folder of the models.
        environment: Virtual environment with vLLM.
    """
    root.mkdir(parents=True, exist_ok=True)
    data = root / DATA
    data.mkdir(exist_ok=True)
    os.chown(data, JOB_USER, JOB_USER)  # fsGroup does nothing on folders of a node
    _link(root / MODELS, models)
    _link(root / ENVIRONMENT, environment)
    return (
        Folder(MODELS, root / MODELS, writable=False),
        Folder(DATA, data, writable=True),
        Folder(ENVIRONMENT, root / ENVIRONMENT, writable=False),
    )


def create_claims(kubectl: Kubectl, folders: Sequence[Folder]) -> None:
    """Creates volumes and claims in the namespace, and waits until they are bound.

    Raises:
        DevError: The cluster refused them, or they were not bound in time.
    """
    kubectl.apply([manifest for folder in folders for manifest in _manifests(kubectl.namespace, folder)])
    claims = [f"persistentvolumeclaim/{folder.claim}" for folder in folders]
    kubectl.run("wait", "--for", "jsonpath={.status.phase}=Bound", "--timeout", _BOUND_WITHIN, *claims)


def _manifests(namespace: str, folder: Folder) -> tuple[Manifest, Manifest]:
    volume = f"{namespace}-{folder.claim}"
    size = {"storage": "100Gi"}
    modes = ["ReadWriteMany" if folder.writable else "ReadOnlyMany"]
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": folder.claim, "namespace": namespace},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": volume,
        },
    }
    persistent_volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "accessModes": modes,
            "capacity": size,
            "claimRef": {"namespace": namespace, "name": folder.claim},
            "hostPath": {"path": str(folder.path)},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
        },
    }
    return persistent_volume, claim


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)
