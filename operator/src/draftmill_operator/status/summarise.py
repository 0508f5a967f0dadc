"""The new status from what was seen and decided."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from draftmill_api import names as api_names
from draftmill_api.progress import FinishResult, PlanResult, WorkerState, unpacked
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import (
    DatasetPlan,
    DatasetProgress,
    Failure,
    OutputModel,
    Phase,
    Plan,
    RunOutput,
    RunProgress,
    Servers,
    SynthRunStatus,
)
from draftmill_operator.decide.ended import terminal_condition
from draftmill_operator.decide.types import Decision
from draftmill_operator.observe.types import Observed, ObservedJob
from draftmill_operator.run import Run
from draftmill_operator.status.conditions import ServerCount, conditions

_BEFORE_WORK: Final = {WorkerState.WAITING, WorkerState.PREFLIGHT}
CAP_REACHED: Final = "CapReached"


def summarise(
    run: Run, seen: Observed, decision: Decision, endpoints: tuple[Endpoint, ...], now: datetime
) -> SynthRunStatus:
    """The status after this pass; an ended run keeps what it ended with."""
    if terminal_condition(run.status) is not None:
        return run.status.model_copy(update={"observed_generation": run.generation})
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    plan = _plan(run, decision.plan) if decision.plan is not None else run.status.plan
    servers = _count_servers(run, seen, decision, endpoints)
    problem = decision.failed or decision.problem
    over = decision.completed is not None or decision.failed is not None
    return run.status.model_copy(
        update={
            "observed_generation": run.generation,
            "phase": decision.phase,
            "reason": _reason(decision)[:128],
            "message": (problem.message if problem is not None else _waiting_for(seen))[:4096],
            "conditions": conditions(run, decision, plan, servers, time),
            "plan": plan,
            "progress": _progress(run, seen, decision),
            "datasets": _datasets(run, seen, decision),
            "servers": _servers(run, decision, servers),
            "output": _output(run, plan, decision.completed),
            "failures": _failures(run, seen, decision),
            "attempts": decision.attempts or run.status.attempts,
            "config_hash": seen.progress.config_hash if seen.progress is not None else run.status.config_hash,
            # A run that waits for the administrator may still be edited: it has not started.
            "start_time": run.status.start_time or (None if decision.phase is Phase.PENDING else time),
            "completion_time": time if over else None,
        }
    )


def _reason(decision: Decision) -> str:
    if decision.completed is not None and decision.completed.cap_reached:
        return CAP_REACHED
    problem = decision.failed or decision.problem
    return problem.reason if problem is not None else ""


def _waiting_for(seen: Observed) -> str:
    """What the worker waits for before it is at work, in its own words."""
    if seen.progress is None or seen.progress.state not in _BEFORE_WORK:
        return ""
    return seen.progress.message


def _plan(run: Run, result: PlanResult) -> Plan:
    datasets = [
        DatasetPlan(name=dataset.name, total=total, duplicates=duplicates, unusable=unusable)
        for dataset, total, duplicates, unusable in zip(
            run.spec.datasets,
            result.dataset_totals,
            result.dataset_duplicates,
            result.dataset_unusable,
            strict=True,
        )
    ]
    return Plan(
        model=result.model,
        datasets=datasets,
        rows=sum(result.dataset_totals),
        prompt_tokens=result.prompt_tokens,
        longest_prompt_tokens=result.longest_prompt_tokens,
        bytes_needed=result.bytes_needed,
        bytes_free=result.bytes_free,
    )


def _count_servers(
    run: Run, seen: Observed, decision: Decision, endpoints: tuple[Endpoint, ...]
) -> ServerCount:
    wanted = run.spec.server.replicas if run.spec.server is not None and decision.wanted.servers else 0
    return ServerCount(
        ready=len(endpoints) if wanted else 0, wanted=wanted, problem=seen.servers.current_problem
    )


def _servers(run: Run, decision: Decision, count: ServerCount) -> Servers | None:
    if run.spec.server is None or not decision.wanted.servers:
        return None
    return Servers(ready=count.ready, wanted=count.wanted, summary=f"{count.ready}/{count.wanted}")


def _progress(run: Run, seen: Observed, decision: Decision) -> RunProgress | None:
    """Counts of the finish, of the worker's last words, or of its last answer; rates only while Running."""
    if decision.completed is not None:
        return _at_rest(decision.completed.progress)
    job = seen.attempt
    if job is not None and job.message is not None and job.message.worker is not None:
        return _at_rest(job.message.worker.progress)
    if seen.progress is None or seen.progress.state in _BEFORE_WORK:
        return _at_rest(run.status.progress) if run.status.progress is not None else None
    if decision.phase is not Phase.RUNNING or not _has_living_pod(job):
        return _at_rest(seen.progress.progress)
    return seen.progress.progress


def _has_living_pod(job: ObservedJob | None) -> bool:
    return job is not None and bool(job.live_pods)


def _at_rest(progress: RunProgress) -> RunProgress:
    """Counts without rates."""
    return progress.model_copy(
        update={"in_flight": 0, "requests_per_second": "", "tokens_per_second": None, "eta": ""}
    )


def _datasets(run: Run, seen: Observed, decision: Decision) -> list[DatasetProgress]:
    if decision.completed is not None and decision.completed.dataset_counts:
        names = [dataset.name for dataset in run.spec.datasets]
        counted = zip(names, decision.completed.dataset_counts, strict=True)
        return [unpacked(name, numbers) for name, numbers in counted]
    if seen.progress is None or seen.progress.state in _BEFORE_WORK:
        return run.status.datasets
    return seen.progress.datasets


def _failures(run: Run, seen: Observed, decision: Decision) -> list[Failure]:
    if decision.completed is not None:
        return list(decision.completed.failures)
    if seen.progress is not None and seen.progress.state not in _BEFORE_WORK:
        return list(seen.progress.failures)
    return list(run.status.failures)


def _output(run: Run, plan: Plan | None, finish: FinishResult | None) -> RunOutput | None:
    if finish is None or plan is None:
        return None
    return RunOutput(
        volume=run.spec.storage.data,
        path=run.spec.output.path,
        manifest=finish.manifest.removeprefix(f"{api_names.DATA_MOUNT}/"),
        manifest_sha256=finish.manifest_sha256,
        records=finish.progress.done,
        tokens=finish.progress.completion_tokens,
        model=OutputModel(name=run.spec.model.name, fingerprint=plan.model.fingerprint),
    )
