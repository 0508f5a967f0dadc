"""What a run's job pods are rendered from, the same for every kind of run."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Model, Server, Storage, Volume


@dataclass(frozen=True)
class Sidecar:
    """The server in a worker's pod, which hands hidden states over in a folder of the pod."""

    server: Server
    command: tuple[str, ...]
    staging_bytes: int
    """Size that the folder is limited to."""
    installs_connector: bool
    """The server's image lacks the connector for its hardware: the job image brings it."""


@dataclass(frozen=True)
class Workload:
    """The job pods of one run."""

    model: Model
    storage: Storage
    command: str
    """What a worker does: a command of the job image."""
    arguments: tuple[str, ...]
    """Further arguments of that command."""
    workers: int
    workers_hash: str
    pod: PodOverrides | None
    """The run's overrides of the job pods."""
    gpus: int = 0
    """GPUs of the worker's own container."""
    input: Volume | None = None
    """Volume of the input, where it is another one than `storage.data`."""
    sidecar: Sidecar | None = None
