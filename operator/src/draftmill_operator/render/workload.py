"""What a run's job pods are rendered from, the same for every kind of run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Model, Server, Storage, Volume
from draftmill_operator.render.hardware import Hardware
from draftmill_operator.run import Role

DRAIN_SECONDS: Final = 45
"""Time that a stopping worker gives the answers in flight; the rest of its grace period is for writing."""


@dataclass(frozen=True)
class Sidecar:
    """The server in a job's pod."""

    server: Server
    command: tuple[str, ...]
    staging_bytes: int | None = None
    """Size that the folder of the pod is limited to in which it hands hidden states over, if it does."""
    installs_connector: bool = False
    """The server's image lacks the connector for its hardware: the job image brings it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the server, under what its run and the chart set."""
    reads_data: bool = False
    """It loads what lies on the data volume."""


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
    """Of a worker."""
    evaluations: Mapping[Role, Sidecar] = field(default_factory=dict)
    """Of each step of an evaluation."""
    ranks: Ranks | None = None
    """The pods of a worker, where they are several."""
    grace_seconds: int = 60
    """Time that a worker has for its end."""
    has_torch: bool = False
    """Its jobs compute with torch, which the trainers' image or environment has."""

    def sidecar_of(self, role: Role) -> Sidecar | None:
        """The server in the pod of a job, if there is one."""
        return self.sidecar if role is Role.WORKER else self.evaluations.get(role)

    @property
    def pods_of_a_worker(self) -> int:
        """How many pods work as one."""
        return self.ranks.nodes if self.ranks is not None else 1
