"""What a kind of run has to say for itself; all else is the same for every kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

from pydantic import ValidationError

from draftmill_api import names as api_names
from draftmill_api.base import ApiModel
from draftmill_api.progress import Progress, TerminationMessage, WorkerResult
from draftmill_api.v1alpha1.lifecycle import RunSpec
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.shared import Endpoint, Engine, Server, Storage
from draftmill_api.v1alpha1.status import Failure, Output
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.render.hardware import Hardware
from draftmill_operator.render.workload import Workload
from draftmill_operator.run import (
    SPEC_NOT_UNDERSTOOD,
    STATUS_NOT_UNDERSTOOD,
    NotUnderstoodError,
    Role,
    Run,
    RunIdentity,
    RunKey,
    first_fault,
)

SpecT = TypeVar("SpecT", bound=RunSpec)
StatusT = TypeVar("StatusT", bound=AnyStatus)
ProgressT = TypeVar("ProgressT", bound=ApiModel)


BESIDE: Final = Endpoint(name="beside", url=f"http://127.0.0.1:{api_names.SERVER_PORT}", engine=Engine.VLLM)
"""The server in the worker's own pod."""


@dataclass(frozen=True)
class Serving:
    """Which servers the workers ask; none of them where they compute themselves."""

    apart: Server | None = None
    """Servers in a Deployment of their own."""
    beside: Server | None = None
    """A server in each worker's pod."""
    given: tuple[Endpoint, ...] = ()
    """Servers that someone else runs."""

    @property
    def started(self) -> Server | None:
        """The servers that the operator starts, wherever they stand."""
        return self.apart or self.beside


@dataclass(frozen=True)
class PausePolicy:
    """When a worker that has paused may go on, and how long servers are kept for it."""

    pause_percent: int
    window: int
    free_servers_after: str
    resume_token: str
    """Another word than when it paused lets it go on in any case."""

    def allows(self, recent_errors: int) -> bool:
        """Whether so many failed rows in the window are no reason to pause."""
        return recent_errors * 100 <= self.pause_percent * self.window


@dataclass(frozen=True)
class Finished:
    """What a finish counted, as the status has it."""

    progress: ApiModel
    output: Output
    message: str
    """The result in a few words, for the condition Complete."""
    reason: str = ""
    """Why the run ended where it did, if that is worth a word."""
    failures: tuple[Failure, ...] = ()
    further: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status that only this kind has."""


class Tally(ABC, Generic[ProgressT]):
    """Arithmetic of one kind's progress."""

    @abstractmethod
    def of_answer(self, answer: Progress) -> ProgressT:
        """The counts in what a worker says."""

    @abstractmethod
    def of_result(self, result: WorkerResult) -> ProgressT:
        """The counts in a worker's last words."""

    @abstractmethod
    def together(self, parts: Sequence[ProgressT]) -> ProgressT:
        """Several workers' progress as one; at least one of them."""

    @abstractmethod
    def at_rest(self, progress: ProgressT) -> ProgressT:
        """Counts without rates."""

    @abstractmethod
    def done(self, progress: ProgressT) -> int:
        """Rows with a result."""

    @abstractmethod
    def accounted(self, progress: ProgressT) -> int:
        """Rows that need no further work: a gain in them is progress."""

    def further(self, answers: Sequence[Progress]) -> dict[str, Any]:
        """Fields of the status that only this kind has, from what all workers say."""
        del answers
        return {}


class RunKind(ABC, Generic[SpecT, StatusT]):
    """One kind of run."""

    name: ClassVar[str]
    """The kind, as users write it."""
    spec_type: type[SpecT]
    status_type: type[StatusT]
    tally: Tally[Any]

    def parse(self, raw: dict[str, Any]) -> Run[SpecT, StatusT]:
        """A run from an object of the API.

        Raises:
            NotUnderstoodError: the spec or the status does not fit this operator's types, for example after
                the CRD was upgraded before the operator, or the operator was downgraded.
        """
        metadata = raw["metadata"]
        try:
            status = self.status_type.model_validate(raw.get("status") or {})
        except ValidationError as error:
            raise NotUnderstoodError(
                STATUS_NOT_UNDERSTOOD,
                f"status.{first_fault(error)}; was it written by a newer operator, or by hand?",
            ) from error
        try:
            spec = self.spec_type.model_validate(raw["spec"])
        except ValidationError as error:
            raise NotUnderstoodError(
                SPEC_NOT_UNDERSTOOD, f"spec.{first_fault(error)}; is the operator older than the CRD?"
            ) from error
        return Run(
            identity=RunIdentity(RunKey(self.name, metadata["namespace"], metadata["name"]), metadata["uid"]),
            generation=metadata.get("generation", 0),
            being_deleted="deletionTimestamp" in metadata,
            spec=spec,
            status=status,
        )

    # What the run is made of

    @abstractmethod
    def workers(self, spec: SpecT) -> int:
        """How many workers share the work."""

    @abstractmethod
    def workers_hash(self, spec: SpecT) -> str:
        """Identity of what all workers are started with: another one starts them all anew."""

    @abstractmethod
    def serving(self, spec: SpecT) -> Serving:
        """Which servers the workers ask."""

    def hardware(self, spec: SpecT) -> Hardware | None:
        """What those of its pods ask for that may need GPUs: its servers, unless it says otherwise."""
        server = self.serving(spec).started
        return Hardware.of(server) if server is not None else None

    @abstractmethod
    def storage(self, run: Run[SpecT, StatusT]) -> Storage:
        """The run's volumes, be they its own or inherited; it has its input."""

    @abstractmethod
    def workload(self, run: Run[SpecT, StatusT]) -> Workload:
        """What its job pods are rendered from; it has its input."""

    @abstractmethod
    def config(self, run: Run[SpecT, StatusT], endpoints: tuple[Endpoint, ...]) -> ApiModel:
        """The config of its jobs; it has its input."""

    @abstractmethod
    def overrides(self, spec: SpecT) -> Iterator[tuple[str, PodOverrides | None]]:
        """Every pod override of the spec with the field it stands in."""

    def evaluations(self, spec: SpecT) -> tuple[Role, ...]:
        """Steps of an evaluation between the workers' end and the finish, one after the other."""
        del spec
        return ()

    def pause_policy(self, spec: SpecT) -> PausePolicy | None:
        """When a paused worker may go on; None for a kind whose workers do not pause."""
        del spec
        return None

    # What the jobs say, as the status has it

    @abstractmethod
    def plan(self, run: Run[SpecT, StatusT], message: TerminationMessage) -> ApiModel | None:
        """The plan in a plan's last words; None if there is none of this kind."""

    def lacks_room(self, run: Run[SpecT, StatusT], message: TerminationMessage, capacity: int) -> str:
        """Why what a plan announces does not fit on a data claim of so many bytes; empty if it does."""
        del run, message, capacity
        return ""

    @abstractmethod
    def summary(self, status: StatusT) -> str:
        """The recorded plan in a few words, for the condition Planned."""

    @abstractmethod
    def finished(self, run: Run[SpecT, StatusT], message: TerminationMessage) -> Finished | None:
        """The result in a finish's last words; None if there is none of this kind."""

    # Chaining

    def upstream(self, run: Run[SpecT, StatusT]) -> RunKey | None:
        """The earlier run that it takes its input from; None for a run that needs none, or a path."""
        del run
        return None

    def input(self, run: Run[SpecT, StatusT]) -> RunInput | None:
        """What it was bound to."""
        del run
        return None

    def takes_input(self) -> bool:
        """Whether runs of this kind have an input at all."""
        return False

    @abstractmethod
    def published(self, run: Run[SpecT, StatusT]) -> RunInput | None:
        """What a later run is bound to; None while it has published nothing, or where nothing follows it."""


AnyRun = Run[RunSpec, AnyStatus]
AnyKind = RunKind[Any, Any]
AnyProgress = Any
"""Progress of some kind; its tally knows which."""
