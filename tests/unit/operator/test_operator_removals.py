from __future__ import annotations

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.removals import unwanted_jobs
from draftmill_operator.decide.types import Decision, Wanted
from draftmill_operator.observe.types import JobState, Observed, ObservedJob
from draftmill_operator.run import Role
from tests.unit.operator.builders import ended_pod, job, pod, situation


def unwanted(wanted: Wanted, seen: Observed, redo: Role | None = None) -> list[ObservedJob]:
    return list(unwanted_jobs(Decision(Phase.RUNNING, wanted, redo=redo), situation(seen=seen)))


def test_a_lost_attempt_goes_before_the_next_comes() -> None:
    lost = job(ended_pod(137), attempt=1)
    assert unwanted(Wanted(servers=True), Observed(workers=(lost,))) == [lost]


def test_the_wanted_attempt_stays_and_older_ones_go_even_when_they_have_ended() -> None:
    old, new = job(ended_pod(1), attempt=1, state=JobState.FAILED), job(pod(), attempt=2)
    assert unwanted(Wanted(workers={0: 2}), Observed(workers=(old, new))) == [old]


def test_jobs_that_have_ended_stay_for_their_logs() -> None:
    seen = Observed(
        plan=job(ended_pod(0), state=JobState.SUCCEEDED),
        workers=(job(ended_pod(0), attempt=1),),
        finish=job(ended_pod(2)),
    )
    assert unwanted(Wanted(), seen) == []


def test_what_still_runs_goes_when_the_run_has_ended() -> None:
    plan, worker = job(pod()), job(pod(), attempt=1)
    assert unwanted(Wanted(), Observed(plan=plan, workers=(worker,))) == [plan, worker]


def test_a_step_whose_answer_was_lost_goes_although_it_has_ended() -> None:
    plan = job(state=JobState.SUCCEEDED)
    assert unwanted(Wanted(), Observed(plan=plan), redo=Role.PLAN) == [plan]


def test_an_evaluation_goes_when_it_still_runs_unwanted_and_when_the_workers_go_on() -> None:
    over = job(ended_pod(0), state=JobState.SUCCEEDED)
    seen = Observed(evaluations={Role.EVALUATE_PLAIN: over, Role.EVALUATE_DRAFT: job(pod())})
    assert unwanted(Wanted(evaluation=Role.EVALUATE_DRAFT), seen) == []
    assert unwanted(Wanted(finish=True), seen) == [seen.evaluations[Role.EVALUATE_DRAFT]]
    assert unwanted(Wanted(workers={0: 2}), seen) == [*seen.evaluations.values()]
    assert unwanted(
        Wanted(), Observed(evaluations={Role.EVALUATE_PLAIN: over}), redo=Role.EVALUATE_PLAIN
    ) == [over]


def test_what_is_being_deleted_is_not_deleted_again() -> None:
    assert unwanted(Wanted(), Observed(plan=job(pod(), deleting=True))) == []
