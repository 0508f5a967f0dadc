"""A run as every part of the operator knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from draftmill_api.v1alpha1.lifecycle import RunSpec
from draftmill_api.v1alpha1.runstatus import AnyStatus

SYNTHRUN: Final = "SynthRun"
EXTRACTRUN: Final = "ExtractRun"
DRAFTERTRAIN: Final = "DrafterTrain"
SPEC_NOT_UNDERSTOOD: Final = "SpecNotUnderstood"
STATUS_NOT_UNDERSTOOD: Final = "StatusNotUnderstood"

SpecT_co = TypeVar("SpecT_co", bound=RunSpec, covariant=True)
StatusT_co = TypeVar("StatusT_co", bound=AnyStatus, covariant=True)


class Role(StrEnum):
    """What a child is for; the value of the label `draftmill.dev/role`."""

    DEFAULTS = "defaults"
    CONFIG = "config"
    PLAN = "plan"
    SERVER = "server"
    WORKER = "worker"
    EVALUATE_PLAIN = "evaluate-plain"
    EVALUATE_DRAFT = "evaluate-draft"
    FINISH = "finish"


EVALUATIONS: Final = (Role.EVALUATE_PLAIN, Role.EVALUATE_DRAFT)
"""The two steps of an evaluation, in their order: only one server holds GPUs at a time."""


@dataclass(frozen=True, order=True)
class RunKey:
    """Where a run is found."""

    kind: str
    """As users write it: `SynthRun`."""
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
class Run(Generic[SpecT_co, StatusT_co]):
    """A run as the API server has it, with its parts parsed."""

    identity: RunIdentity
    generation: int
    being_deleted: bool
    spec: SpecT_co
    status: StatusT_co

    @property
    def key(self) -> RunKey:
        """Where the run is found."""
        return self.identity.key


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
