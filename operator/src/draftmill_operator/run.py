"""A run as every part of the operator knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from draftmill_api.v1alpha1.status import SynthRunStatus
from draftmill_api.v1alpha1.synthrun import SynthRunSpec

SYNTHRUN: Final = "SynthRun"
NOT_UNDERSTOOD: Final = "SpecNotUnderstood"


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
            NotUnderstoodError: the spec does not fit this operator's types, for example after the CRD was
                upgraded before the operator.
            pydantic.ValidationError: the status does not, which only an operator can have written.
        """
        metadata = raw["metadata"]
        key = RunKey(SYNTHRUN, metadata["namespace"], metadata["name"])
        identity = RunIdentity(key=key, uid=metadata["uid"])
        status = SynthRunStatus.model_validate(raw.get("status") or {})
        try:
            spec = SynthRunSpec.model_validate(raw["spec"])
        except ValidationError as error:
            raise NotUnderstoodError(identity, status, error) from error
        return cls(
            identity=identity,
            generation=metadata.get("generation", 0),
            being_deleted="deletionTimestamp" in metadata,
            spec=spec,
            status=status,
        )


class NotUnderstoodError(Exception):
    """A run whose spec this operator does not understand."""

    def __init__(self, identity: RunIdentity, status: SynthRunStatus, error: ValidationError) -> None:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        super().__init__(f"{identity.key}: spec.{field}: {first['msg']}; is the operator older than the CRD?")
        self.identity = identity
        self.status = status
