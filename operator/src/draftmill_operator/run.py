"""A run as every part of the operator knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from draftmill_api.v1alpha1.synthrun import SynthRunSpec, SynthRunStatus

SYNTHRUN: Final = "SynthRun"
SPEC_NOT_UNDERSTOOD: Final = "SpecNotUnderstood"
STATUS_NOT_UNDERSTOOD: Final = "StatusNotUnderstood"


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
            NotUnderstoodError: the spec or the status does not fit this operator's types, for example after
                the CRD was upgraded before the operator, or the operator was downgraded.
        """
        metadata = raw["metadata"]
        key = RunKey(SYNTHRUN, metadata["namespace"], metadata["name"])
        try:
            status = SynthRunStatus.model_validate(raw.get("status") or {})
        except ValidationError as error:
            raise NotUnderstoodError(
                STATUS_NOT_UNDERSTOOD,
                f"status.{first_fault(error)}; was it written by a newer operator, or by hand?",
            ) from error
        try:
            spec = SynthRunSpec.model_validate(raw["spec"])
        except ValidationError as error:
            raise NotUnderstoodError(
                SPEC_NOT_UNDERSTOOD, f"spec.{first_fault(error)}; is the operator older than the CRD?"
            ) from error
        return cls(
            identity=RunIdentity(key=key, uid=metadata["uid"]),
            generation=metadata.get("generation", 0),
            being_deleted="deletionTimestamp" in metadata,
            spec=spec,
            status=status,
        )


class NotUnderstoodError(Exception):
    """What there is of a run is not what this operator can act on: people have to see to it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One CamelCase word."""


def first_fault(error: ValidationError) -> str:
    """The first field that does not fit, and why; its value is not told."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
