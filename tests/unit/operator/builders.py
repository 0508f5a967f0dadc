"""Small builders of what the operator sees, so that a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from draftmill_api.progress import Progress, TerminationMessage, WorkerState
from draftmill_api.v1alpha1.runstatus import Attempts, Pause
from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_api.v1alpha1.status import Condition, ConditionStatus, DatasetPlan, Plan, RunProgress
from draftmill_api.v1alpha1.synthrun import SynthRunSpec, SynthRunStatus
from draftmill_operator.decide.types import Situation
from draftmill_operator.kinds.synthrun import SynthRunKind
from draftmill_operator.observe.types import (
    JobState,
    Observed,
    ObservedJob,
    ObservedPod,
    ObservedServers,
    Problem,
    Termination,
)
from draftmill_operator.run import SYNTHRUN, Run, RunIdentity, RunKey
from tests.support.played import FACTS
from tests.support.synthruns import smallest_synth_run

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
START = "2026-01-01T12:00:00Z"
"""`NOW` as a status says it."""
SERVER = {"engine": "SGLang", "image": "i"}
IDENTITY = RunIdentity(RunKey(SYNTHRUN, "team", "k25-10k"), uid="0b1f-run")
PLAN = Plan(
    model=FACTS,
    datasets=[DatasetPlan(name="B1_glaive", total=100)],
    output_path="prepared",
    rows=100,
    prompt_tokens=1000,
    longest_prompt_tokens=100,
    bytes_needed=1,
    bytes_free=2,
)
SYNTH = SynthRunKind()
ENDPOINT = Endpoint(name="one", url="http://10.0.0.5:8000", engine=Engine.SGLANG)


def spec(**parts: Any) -> SynthRunSpec:
    """The smallest spec with these parts in place of its own; None removes one."""
    raw = smallest_synth_run("any")["spec"] | parts
    return SynthRunSpec.model_validate({key: value for key, value in raw.items() if value is not None})


def run(status: SynthRunStatus | None = None, **parts: Any) -> Run[SynthRunSpec, SynthRunStatus]:
    """A run with a spec of these parts."""
    return as_run(spec(**parts), status)


def as_run(spec: SynthRunSpec, status: SynthRunStatus | None = None) -> Run[SynthRunSpec, SynthRunStatus]:
    """A run with this spec."""
    return Run(IDENTITY, 1, being_deleted=False, spec=spec, status=status or SynthRunStatus())


def planned(**status: Any) -> SynthRunStatus:
    """The status of a run that has its plan."""
    return SynthRunStatus(plan=PLAN, **status)


def situation(
    status: SynthRunStatus | None = None,
    seen: Observed | None = None,
    *,
    endpoints: tuple[Endpoint, ...] = (ENDPOINT,),
    prefixes: tuple[str, ...] = (),
    now: datetime = NOW,
    given: list[dict[str, Any]] | None = None,
    **parts: Any,
) -> Situation:
    """What a rule is asked about; `endpoints` are those that answer, `given` those of the spec."""
    if given is not None:
        parts |= {"server": None, "endpoints": given}
    return Situation(SYNTH, run(status, **parts), seen or Observed(), endpoints, prefixes, now)


def pod(name: str = "pod", **fields: Any) -> ObservedPod:
    """A pod that runs."""
    base = ObservedPod(
        name=name,
        uid=f"uid-{name}",
        ip="10.0.0.9",
        created=NOW,
        ended=False,
        ready=True,
        deleting=False,
        disrupted=False,
        started=True,
        running_since=NOW,
        template_hash="t",
        config_hash="c",
        problem=None,
        termination=None,
        main_started=True,
    )
    return replace(base, **fields)


def ended_pod(
    exit_code: int, message: TerminationMessage | None = None, text: str = "", **fields: Any
) -> ObservedPod:
    """A pod whose container ended so."""
    termination = Termination(exit_code, "Completed" if exit_code == 0 else "Error", text, message)
    return pod(ended=True, ready=False, termination=termination, **fields)


def job(
    *pods: ObservedPod, attempt: int = 0, state: JobState = JobState.ACTIVE, **fields: Any
) -> ObservedJob:
    """A Job with these pods."""
    base = ObservedJob(
        name="job",
        uid=f"uid-job-{attempt}",
        attempt=attempt,
        state=state,
        deleting=False,
        created=NOW,
        failed_pods=0,
        lost_pod=False,
        verdict=None,
        pods=pods,
    )
    return replace(base, **fields)


def doing(**status: Any) -> SynthRunStatus:
    """The status of a planned run with one worker whose tries are so."""
    return planned(attempts=[Attempts(worker=0, **status)])


def servers(*pods: ObservedPod, problem: Problem | None = None) -> ObservedServers:
    """A Deployment with these pods."""
    return ObservedServers(exists=True, pods=pods, problem=problem)


def progress(done: int, state: WorkerState = WorkerState.RUNNING, **fields: Any) -> Progress:
    """What a worker with so many records says."""
    counted = RunProgress(done=done, ok=done, total=100, requests_per_second="1.1", eta="1m", in_flight=8)
    return Progress(state=state, config_hash="c", progress=counted, **fields)


READY = servers(pod("server", node="n"))


def later(seconds: float) -> datetime:
    """The time so many seconds after `NOW`."""
    return NOW + timedelta(seconds=seconds)


def over(kind: str, **status: Any) -> SynthRunStatus:
    """The status of a run that ended at `NOW`: `kind` is Complete or Failed."""
    condition = Condition(
        type=kind,
        status=ConditionStatus.TRUE,
        reason="R",
        last_transition_time=START,
        observed_generation=1,
    )
    return planned(conditions=[condition], completion_time=START, **status)


def paused_at(seconds: float, *, pause: Pause | None = None, **parts: Any) -> Situation:
    """A run whose one worker holds rows back, so many seconds after `NOW`."""
    seen = Observed(
        workers=(job(pod(), attempt=1),),
        servers=READY,
        progress={0: progress(40, WorkerState.PAUSED, message="5.4 % failed", recent_errors=27)},
    )
    status = doing(count=1).model_copy(update={"pause": pause})
    return situation(status, seen, now=later(seconds), **parts)
