"""What a run's job pods are rendered from, the same for every kind of run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Model, Server, Storage, Volume
from draftmill_operator.render.hardware import Hardware

DRAIN_SECONDS: Final = 45
"""Time that a stopping worker gives the answers in flight; the rest of its grace period is for writing."""


@dataclass(frozen=True)
class Sidecar:
    """The server in a worker's pod, which hands hidden states over in a folder of the pod."""

    server: Server
    command: tuple[str, ...]
    staging_bytes: int
    """Size that the folder is limited to."""
    installs_connector: bool
    """The server's image lacks the connector for its hardware: the job image brings it."""
    env: Mapping[str, str]
    """Of the server, under what its run and the chart set."""


@dataclass(frozen=True)
class Ranks:
    """A worker that is several pods, which start, go on and end together."""

    nodes: int
    """How many pods."""
    hardware: Hardware
    """Of each pod."""

    @property
    def processes(self) -> int:
        """How many processes compute in each pod: one for each GPU, or one."""
        return max(1, self.hardware.gpus)


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
    ranks: Ranks | None = None
    """The pods of a worker, where they are several."""
    grace_seconds: int = 60
    """Time that a worker has for its end."""
    has_torch: bool = False
    """Its jobs compute with torch, which the trainers' image or environment has."""

    @property
    def pods_of_a_worker(self) -> int:
        """How many pods work as one."""
        return self.ranks.nodes if self.ranks is not None else 1
