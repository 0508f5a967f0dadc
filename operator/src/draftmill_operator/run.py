"""A run as every part of the operator knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from draftmill_api.v1alpha1.status import SynthRunStatus
from draftmill_api.v1alpha1.synthrun import SynthRunSpec

SYNTHRUN: Final = "SynthRun"


class Role(StrEnum):
    """What a child is for; the value of the label `draftmill.dev/role`."""

    DEFAULTS = "defaults"
    CONFIG = "config"
    PLAN = "plan"
    SERVER = "server"
    WORKER = "worker"
    FINISH = "finish"


@dataclass(frozen=True, order=True)
class RunKey:
    """Where a run is found."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class RunIdentity:
    """One run; a re-created one of the same name has another uid."""

    key: RunKey
    uid: str


@dataclass(frozen=True)
class Run:
    """A run as the API server has it, with its parts parsed."""

    identity: RunIdentity
    generation: int
    being_deleted: bool
    spec: SynthRunSpec
    status: SynthRunStatus

    @property
    def key(self) -> RunKey:
        """Where the run is found."""
        return self.identity.key

    @classmethod
    def from_object(cls, raw: dict[str, Any]) -> Run:
        """Parse an object of the API.

        Raises:
            pydantic.ValidationError: the spec or the status does not fit this operator's types, for
                example after the CRD was upgraded before the operator.
        """
        metadata = raw["metadata"]
        key = RunKey(SYNTHRUN, metadata["namespace"], metadata["name"])
        return cls(
            identity=RunIdentity(key=key, uid=metadata["uid"]),
            generation=metadata.get("generation", 0),
            being_deleted="deletionTimestamp" in metadata,
            spec=SynthRunSpec.model_validate(raw["spec"]),
            status=SynthRunStatus.model_validate(raw.get("status") or {}),
        )
