"""The new status from what was seen and decided."""

from __future__ import annotations

from typing import Any

from draftmill_api.progress import Progress
from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.status import Failure, Phase, Servers
from draftmill_operator.decide.ended import terminal_condition
from draftmill_operator.decide.facts import Facts
from draftmill_operator.decide.misplaced import job_problem
from draftmill_operator.decide.starting import AT_WORK, server_problem
from draftmill_operator.decide.types import Decision, Situation, Wanted, Worker
from draftmill_operator.kinds.base import AnyProgress
from draftmill_operator.run import Role
from draftmill_operator.status.conditions import ServerCount, conditions
from draftmill_operator.status.together import failures_together, filled_in


def summarise(situation: Situation, decision: Decision) -> AnyStatus:
    """The status after this pass; an ended run keeps what it ended with."""
    run = situation.run
    servers = _count_servers(situation, decision)
    if terminal_condition(run.status) is not None:
        update = {"observed_generation": run.generation, "servers": _servers(servers)}
        return run.status.model_copy(update=update)
    time = situation.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = decision.facts or situation.facts
    bound = {"input": decision.bound} if decision.bound is not None else {}
    recorded = run.status.model_copy(
        update=bound | {"plan": decision.plan if decision.plan is not None else run.status.plan}
    )
    over = decision.completed is not None or decision.failed is not None
    return recorded.model_copy(
        update={
            "observed_generation": run.generation,
            "phase": decision.phase,
            "reason": _reason(decision)[:128],
            "message": _message(situation, decision)[:4096],
            "conditions": conditions(situation, decision, recorded, servers, time),
            "progress": _progress(situation, decision),
            "servers": _servers(servers),
            "output": decision.completed.output if decision.completed is not None else None,
            "failures": _failures(situation, decision),
            "attempts": [*facts.attempts, *facts.former] if _has_attempts(facts) else run.status.attempts,
            "workers_hash": facts.workers_hash,
            "restart_served": facts.restart_served,
            "clock": facts.clock,
            "pause": facts.pause,
            "excluded_nodes": list(facts.excluded_nodes),
            "steps": list(facts.steps),
            "config_hash": _config_hash(situation),
            "start_time": run.status.start_time or (time if _has_started(decision) else None),
            "completion_time": time if over else None,
        }
        | _further(situation, decision)
    )


def _has_started(decision: Decision) -> bool:
    """A run that waits for the administrator or its input, or was created suspended, may still be edited."""
    return decision.phase not in {Phase.PENDING, Phase.WAITING_FOR_INPUT, Phase.SUSPENDED}


def _has_attempts(facts: Facts) -> bool:
    return any(record.count for record in (*facts.attempts, *facts.former))


def _reason(decision: Decision) -> str:
    if decision.completed is not None and decision.completed.reason:
        return decision.completed.reason
    problem = decision.failed or decision.problem or decision.warning
    return problem.reason if problem is not None else ""


def _message(situation: Situation, decision: Decision) -> str:
    problem = decision.failed or decision.problem or decision.warning
    return problem.message if problem is not None else decision.doing or _waiting_for(situation)


def _waiting_for(situation: Situation) -> str:
    """What a worker waits for before it is at work, in its own words."""
    waiting = (answer for answer in situation.progress.values() if answer.state not in AT_WORK)
    return next((answer.message for answer in waiting if answer.message), "")


def _config_hash(situation: Situation) -> str:
    """What all workers that can be heard have in force; while they differ, what they had before."""
    hashes = {answer.config_hash for answer in situation.progress.values()}
    return hashes.pop() if len(hashes) == 1 else situation.run.status.config_hash


def _count_servers(situation: Situation, decision: Decision) -> ServerCount:
    server, wanted = situation.serving.apart, decision.wanted
    if situation.serving.beside is not None:
        return _count_beside(situation, wanted)
    kept = wanted.keep_servers and situation.seen.servers.exists
    holds = server is not None and (wanted.servers or kept)
    return ServerCount(
        ready=len(situation.endpoints) if holds else 0,
        wanted=server.replicas if server is not None and holds else 0,
        problem=server_problem(situation),
    )


def _count_beside(situation: Situation, wanted: Wanted) -> ServerCount:
    """Servers in the pods of the workers that shall run now."""
    living = [
        worker.living
        for worker in situation.workers
        if worker.living is not None and worker.index in wanted.workers
    ]
    problems = (job_problem(situation, Role.WORKER, job) for job in living)
    return ServerCount(
        ready=sum(any(pod.server_ready for pod in job.live_pods) for job in living),
        wanted=len(wanted.workers),
        problem=next((problem for problem in problems if problem is not None), None),
    )


def _servers(count: ServerCount) -> Servers | None:
    if not count.wanted:
        return None
    return Servers(ready=count.ready, wanted=count.wanted, summary=f"{count.ready}/{count.wanted}")


def _progress(situation: Situation, decision: Decision) -> AnyProgress | None:
    """Counts of the finish, or of all workers together; rates only while Running.

    While a worker has not said anything yet, the counts stay as they were: they do not fall.
    """
    tally, recorded = situation.kind.tally, situation.run.status.progress
    if decision.completed is not None:
        return tally.at_rest(decision.completed.progress)
    parts = [_of_worker(situation, worker) for worker in situation.workers]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return tally.at_rest(recorded) if recorded is not None else None
    together = tally.together(known)
    fallen = recorded is not None and any(
        count(together) < count(recorded) for count in (tally.done, tally.accounted)
    )
    if recorded is not None and fallen and not _all_heard(situation):
        return tally.at_rest(recorded)
    return together if decision.phase is Phase.RUNNING else tally.at_rest(together)


def _all_heard(situation: Situation) -> bool:
    """Whether each worker's newest attempt has spoken; what an earlier one said may be older than its end."""
    return all(worker.job is not None and worker.index in situation.progress for worker in situation.workers)


def _of_worker(situation: Situation, worker: Worker) -> AnyProgress | None:
    """The worker's last words, its answer, or what it said in an earlier attempt."""
    tally, job = situation.kind.tally, worker.job
    if job is not None and job.message is not None and job.message.worker is not None:
        return tally.at_rest(tally.of_result(job.message.worker))
    answer = _last_at_work(situation, worker)
    if answer is None:
        return None
    is_now = answer is situation.progress.get(worker.index) and job is not None and job.live_pods
    counts = tally.of_answer(answer)
    return counts if is_now else tally.at_rest(counts)


def _last_at_work(situation: Situation, worker: Worker) -> Progress | None:
    """What the worker said last while it was at work, in this attempt or an earlier one."""
    said = (situation.progress.get(worker.index), situation.seen.known.get(worker.share))
    return next((answer for answer in said if answer is not None and answer.state in AT_WORK), None)


def _further(situation: Situation, decision: Decision) -> dict[str, Any]:
    """Fields that only this kind has, from the finish or from what all workers say."""
    if decision.completed is not None and decision.completed.further:
        return dict(decision.completed.further)
    answers = _answers_at_work(situation)
    return situation.kind.tally.further(answers) if answers is not None else {}


def _failures(situation: Situation, decision: Decision) -> list[Failure]:
    if decision.completed is not None:
        return filled_in(decision.completed.failures, situation.run.status.failures)
    answers = _answers_at_work(situation)
    if answers is None:
        return list(situation.run.status.failures)
    return failures_together([answer.failures for answer in answers])


def _answers_at_work(situation: Situation) -> list[Progress] | None:
    """What each worker said last while it was at work; None if one of them never was."""
    said = [_last_at_work(situation, worker) for worker in situation.workers]
    found = [answer for answer in said if answer is not None]
    return found if len(found) == len(said) else None
