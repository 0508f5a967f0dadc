"""Suspend and resume: what goes, in which order, and when the run counts as suspended."""

from __future__ import annotations

import pytest

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.removals import unwanted_jobs
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Wanted
from draftmill_operator.observe.types import JobState, Observed, ObservedServers, Problem
from tests.unit.operator.builders import READY, doing, ended_pod, job, over, pod, situation


class TestSuspended:
    def test_a_run_that_was_created_so_starts_nothing_and_asks_for_no_look(self) -> None:
        decision = decide(situation(suspend=True))
        assert (decision.phase, decision.wanted) == (Phase.SUSPENDED, Wanted())
        assert decision.requeue_after is None

    def test_it_is_suspending_while_a_pod_is_left_and_the_pods_job_goes(self) -> None:
        where = situation(
            doing(count=1), Observed(workers=(job(pod("w"), attempt=1),), servers=READY), suspend=True
        )
        decision = decide(where)
        assert (decision.phase, decision.wanted) == (Phase.SUSPENDING, Wanted())
        assert decision.problem == Problem("Suspended", "waiting for pod w and 1 more to be gone")
        assert [job.attempt for job in unwanted_jobs(decision, where)] == [1]
        assert decision.requeue_after is None

    @pytest.mark.parametrize(
        "seen",
        [
            Observed(stray_worker_pods=(pod("old", deleting=True),)),
            Observed(servers=ObservedServers(exists=False, pods=(pod("server", deleting=True),))),
            Observed(servers=ObservedServers(exists=True, deleting=True)),
            Observed(plan=job(pod("plan", deleting=True), deleting=True)),
            Observed(workers=(job(attempt=1, deleting=True),)),
        ],
    )
    def test_it_is_not_suspended_before_the_last_of_everything_is_gone(self, seen: Observed) -> None:
        assert decide(situation(doing(count=1), seen, suspend=True)).phase is Phase.SUSPENDING

    def test_a_finished_job_that_stays_for_its_logs_does_not_keep_it_from_being_suspended(self) -> None:
        seen = Observed(plan=job(ended_pod(0), state=JobState.SUCCEEDED))
        assert decide(situation(doing(count=1), seen, suspend=True)).phase is Phase.SUSPENDED

    def test_resumed_it_goes_on_with_the_next_attempt(self) -> None:
        decision = decide(situation(doing(count=1), Observed(servers=READY)))
        assert decision.wanted.workers == {0: 2}

    def test_resumed_while_an_old_pod_still_drains_it_waits_for_that(self) -> None:
        seen = Observed(servers=READY, workers=(job(pod("old", deleting=True), attempt=1, deleting=True),))
        where = situation(doing(count=1, last_failed_attempt=1), seen)
        assert decide(where).wanted.workers == {}

    def test_an_ended_run_stays_ended(self) -> None:
        assert decide(situation(over("Complete"), suspend=True)).phase is Phase.SUCCEEDED
