"""After the end: kept servers, and the run that goes when its time is over."""

from __future__ import annotations

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Wanted
from draftmill_operator.observe.types import JobState, Observed
from tests.support.played import finish_message
from tests.unit.operator.builders import READY, SERVER, doing, ended_pod, job, later, over, situation


class TestAfterTheEnd:
    def test_servers_are_kept_for_their_time_and_not_made_again(self) -> None:
        server = SERVER | {"keepAfterSuccess": "10m"}
        kept = decide(situation(over("Complete"), Observed(servers=READY), server=server, now=later(60)))
        assert (kept.wanted, kept.requeue_after) == (Wanted(keep_servers=True), 540)
        gone = decide(situation(over("Complete"), Observed(servers=READY), server=server, now=later(600)))
        assert gone.wanted == Wanted()

    def test_success_and_failure_have_their_own_time(self) -> None:
        server = SERVER | {"keepAfterFailure": "10m"}
        assert decide(situation(over("Complete"), server=server)).wanted == Wanted()
        assert decide(situation(over("Failed"), server=server)).wanted == Wanted(keep_servers=True)

    def test_kept_servers_do_not_hold_up_the_finish(self) -> None:
        server = SERVER | {"keepAfterSuccess": "10m"}
        where = situation(doing(count=1, succeeded=True), Observed(servers=READY), server=server)
        assert decide(where).wanted == Wanted(config=True, finish=True, keep_servers=True)
        answered = job(ended_pod(0, finish_message(100)), state=JobState.SUCCEEDED)
        where = situation(
            doing(count=1, succeeded=True), Observed(servers=READY, finish=answered), server=server
        )
        assert decide(where).wanted == Wanted(keep_servers=True)

    def test_servers_outlive_a_failure_that_keeps_them(self) -> None:
        server = SERVER | {"keepAfterFailure": "10m"}
        seen = Observed(workers=(job(ended_pod(2, text="no"), attempt=1),), servers=READY)
        decision = decide(situation(doing(count=1), seen, server=server))
        assert (decision.phase, decision.wanted) == (Phase.FAILED, Wanted(keep_servers=True))

    def test_the_run_goes_when_its_time_is_over_to_the_second(self) -> None:
        before = decide(situation(over("Complete"), ttlAfterFinished="1h", now=later(3599)))
        assert (before.remove_run, before.requeue_after) == (False, 1)
        assert decide(situation(over("Failed"), ttlAfterFinished="1h", now=later(3600))).remove_run

    def test_the_pass_that_ends_a_run_calls_for_the_one_that_looks_after_the_end(self) -> None:
        answered = job(ended_pod(0, finish_message(100)), state=JobState.SUCCEEDED)
        seen = Observed(finish=answered)
        ends = decide(situation(doing(count=1, succeeded=True), seen, ttlAfterFinished="1h"))
        assert (ends.phase, ends.requeue_after) == (Phase.SUCCEEDED, 0)
        refused = Observed(workers=(job(ended_pod(2, text="no"), attempt=1),), servers=READY)
        assert decide(situation(doing(count=1), refused)).requeue_after == 0

    def test_without_a_time_it_stays(self) -> None:
        decision = decide(situation(over("Complete"), now=later(10**9)))
        assert (decision.remove_run, decision.requeue_after) == (False, None)
