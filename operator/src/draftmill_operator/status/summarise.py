"""The new status from what was seen and decided."""

from __future__ import annotations

from typing import Final

from draftmill_api import names as api_names
from draftmill_api.progress import FinishResult, PlanResult, Progress, unpacked
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
)
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.decide.ended import terminal_condition
from draftmill_operator.decide.facts import Facts
from draftmill_operator.decide.starting import AT_WORK, server_problem
from draftmill_operator.decide.types import Decision, Situation, Worker
from draftmill_operator.run import Run
from draftmill_operator.status.conditions import ServerCount, conditions
from draftmill_operator.status.together import datasets_together, failures_together, progress_together

CAP_REACHED: Final = "CapReached"


def summarise(situation: Situation, decision: Decision) -> SynthRunStatus:
    """The status after this pass; an ended run keeps what it ended with."""
    run = situation.run
    servers = _count_servers(situation, decision)
    if terminal_condition(run.status) is not None:
        update = {"observed_generation": run.generation, "servers": _servers(servers)}
        return run.status.model_copy(update=update)
    time = situation.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = decision.facts or situation.facts
    plan = _plan(run, decision.plan) if decision.plan is not None else run.status.plan
    problem = decision.failed or decision.problem or decision.warning
    over = decision.completed is not None or decision.failed is not None
    return run.status.model_copy(
        update={
            "observed_generation": run.generation,
            "phase": decision.phase,
            "reason": _reason(decision)[:128],
            "message": (problem.message if problem is not None else _waiting_for(situation))[:4096],
            "conditions": conditions(run, decision, plan, servers, time),
            "plan": plan,
            "progress": _progress(situation, decision),
            "datasets": _datasets(situation, decision),
            "servers": _servers(servers),
            "output": _output(run, plan, decision.completed),
            "failures": _failures(situation, decision),
            "attempts": [*facts.attempts, *facts.former] if _has_attempts(facts) else run.status.attempts,
            "workers_hash": facts.workers_hash,
            "restart_served": facts.restart_served,
            "clock": facts.clock,
            "pause": facts.pause,
            "excluded_nodes": list(facts.excluded_nodes),
            "config_hash": _config_hash(situation),
            "start_time": run.status.start_time or (time if _has_started(decision) else None),
            "completion_time": time if over else None,
        }
    )


def _has_started(decision: Decision) -> bool:
    """A run that waits for the administrator, or was created suspended, may still be edited."""
    return decision.phase not in {Phase.PENDING, Phase.SUSPENDED}


def _has_attempts(facts: Facts) -> bool:
    return any(record.count for record in (*facts.attempts, *facts.former))


def _reason(decision: Decision) -> str:
    if decision.completed is not None and decision.completed.cap_reached:
        return CAP_REACHED
    problem = decision.failed or decision.problem or decision.warning
    return problem.reason if problem is not None else ""


def _waiting_for(situation: Situation) -> str:
    """What a worker waits for before it is at work, in its own words."""
    waiting = (answer for answer in situation.progress.values() if answer.state not in AT_WORK)
    return next((answer.message for answer in waiting if answer.message), "")


def _config_hash(situation: Situation) -> str:
    """What all workers that can be heard have in force; while they differ, what they had before."""
    hashes = {answer.config_hash for answer in situation.progress.values()}
    return hashes.pop() if len(hashes) == 1 else situation.run.status.config_hash


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


def _count_servers(situation: Situation, decision: Decision) -> ServerCount:
    server, wanted = situation.spec.server, decision.wanted
    kept = wanted.keep_servers and situation.seen.servers.exists
    holds = server is not None and (wanted.servers or kept)
    return ServerCount(
        ready=len(situation.endpoints) if holds else 0,
        wanted=server.replicas if server is not None and holds else 0,
        problem=server_problem(situation),
    )


def _servers(count: ServerCount) -> Servers | None:
    if not count.wanted:
        return None
    return Servers(ready=count.ready, wanted=count.wanted, summary=f"{count.ready}/{count.wanted}")


def _progress(situation: Situation, decision: Decision) -> RunProgress | None:
    """Counts of the finish, or of all workers together; rates only while Running.

    While a worker has not said anything yet, the counts stay as they were: they do not fall.
    """
    if decision.completed is not None:
        return _at_rest(decision.completed.progress)
    recorded = situation.run.status.progress
    parts = [_of_worker(situation, worker) for worker in situation.workers]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return _at_rest(recorded) if recorded is not None else None
    together = progress_together(known)
    if recorded is not None and together.done < recorded.done and not _all_heard(situation):
        return _at_rest(recorded)
    return together if decision.phase is Phase.RUNNING else _at_rest(together)


def _all_heard(situation: Situation) -> bool:
    """Whether each worker's newest attempt has spoken; what an earlier one said may be older than its end."""
    return all(worker.job is not None and worker.index in situation.progress for worker in situation.workers)


def _of_worker(situation: Situation, worker: Worker) -> RunProgress | None:
    """The worker's last words, its answer, or what it said in an earlier attempt."""
    job = worker.job
    if job is not None and job.message is not None and job.message.worker is not None:
        return _at_rest(job.message.worker.progress)
    answer = _last_at_work(situation, worker)
    if answer is None:
        return None
    is_now = answer is situation.progress.get(worker.index) and job is not None and job.live_pods
    return answer.progress if is_now else _at_rest(answer.progress)


def _last_at_work(situation: Situation, worker: Worker) -> Progress | None:
    """What the worker said last while it was at work, in this attempt or an earlier one."""
    said = (situation.progress.get(worker.index), situation.seen.known.get(worker.share))
    return next((answer for answer in said if answer is not None and answer.state in AT_WORK), None)


def _at_rest(progress: RunProgress) -> RunProgress:
    """Counts without rates."""
    return progress.model_copy(
        update={"in_flight": 0, "requests_per_second": "", "tokens_per_second": None, "eta": ""}
    )


def _datasets(situation: Situation, decision: Decision) -> list[DatasetProgress]:
    if decision.completed is not None and decision.completed.dataset_counts:
        names = [dataset.name for dataset in situation.spec.datasets]
        counted = zip(names, decision.completed.dataset_counts, strict=True)
        return [unpacked(name, numbers) for name, numbers in counted]
    answers = _answers_at_work(situation)
    if answers is None:
        return situation.run.status.datasets
    return datasets_together([answer.datasets for answer in answers])


def _failures(situation: Situation, decision: Decision) -> list[Failure]:
    if decision.completed is not None:
        return list(decision.completed.failures)
    answers = _answers_at_work(situation)
    if answers is None:
        return list(situation.run.status.failures)
    return failures_together([answer.failures for answer in answers])


def _answers_at_work(situation: Situation) -> list[Progress] | None:
    """What each worker said last while it was at work; None if one of them never was."""
    said = [_last_at_work(situation, worker) for worker in situation.workers]
    found = [answer for answer in said if answer is not None]
    return found if len(found) == len(said) else None


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
