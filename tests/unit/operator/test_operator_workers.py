"""Several workers, and those that are started again with the next number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.removals import unwanted_jobs
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.types import JobState, Observed, Problem
from tests.support.played import finish_message
from tests.unit.operator.builders import (
    READY,
    START,
    SYNTH,
    doing,
    ended_pod,
    job,
    later,
    planned,
    pod,
    progress,
    servers,
    situation,
    spec,
)


def three(*records: Attempts, workers: tuple[Any, ...] = (), **parts: Any) -> Situation:
    status = planned(attempts=list(records), workers_hash=parts.pop("recorded", ""))
    return situation(status, Observed(workers=workers, servers=READY), generation={"workers": 3}, **parts)


class TestWorkers:
    def test_all_of_them_are_started(self) -> None:
        decision = decide(three())
        assert decision.wanted.workers == {0: 1, 1: 1, 2: 1}
        assert decision.facts is not None
        assert [record.count for record in decision.facts.attempts] == [1, 1, 1]

    def test_one_that_dies_is_started_again_and_the_others_work_on(self) -> None:
        jobs = (
            job(pod("a"), attempt=1),
            job(ended_pod(137, name="b"), attempt=1, worker=1),
            job(pod("c"), attempt=1, worker=2),
        )
        records = [Attempts(worker=index, count=1) for index in range(3)]
        lost = decide(three(*records, workers=jobs))
        assert lost.wanted.workers == {0: 1, 2: 1}
        assert lost.problem == Problem("WorkerRestarting", "worker 1: attempt 1 failed: exit code 137")
        assert lost.facts is not None
        still_there = decide(three(*lost.facts.attempts, workers=jobs, now=later(2)))
        assert still_there.wanted.workers == {0: 1, 2: 1}
        gone = decide(three(*lost.facts.attempts, workers=(jobs[0], jobs[2]), now=later(2)))
        assert gone.wanted.workers == {0: 1, 1: 2, 2: 1}

    def test_one_that_is_done_is_not_started_again(self) -> None:
        records = [
            Attempts(worker=0, count=1, succeeded=True),
            Attempts(worker=1, count=1),
            Attempts(worker=2, count=1),
        ]
        jobs = (job(pod("b"), attempt=1, worker=1), job(pod("c"), attempt=1, worker=2))
        assert decide(three(*records, workers=jobs)).wanted.workers == {1: 1, 2: 1}

    def test_the_finish_waits_for_the_last_of_them(self) -> None:
        done = [Attempts(worker=index, count=1, succeeded=True) for index in range(3)]
        assert decide(three(*done)).phase is Phase.FINISHING
        assert decide(three(*done[:2])).phase is Phase.STARTING

    def test_the_failures_of_one_are_not_counted_to_another(self) -> None:
        records = [Attempts(worker=index, count=3, without_progress=3) for index in range(3)]
        assert decide(three(*records, backoffLimit=5)).failed is None


class TestRestart:
    OLD = SYNTH.workers_hash(spec())

    def restarted(self, seen: Observed, **parts: Any) -> Situation:
        record = Attempts(worker=0, count=4, without_progress=3, last_failed_attempt=3, succeeded=False)
        status = planned(attempts=[record], workers_hash=self.OLD, start_time=START)
        return situation(status, seen, **({"restart": "once"} | parts))

    def test_the_old_attempt_goes_and_none_is_started_beside_it(self) -> None:
        old = job(pod("old"), attempt=4, workers_hash=self.OLD)
        where = self.restarted(Observed(workers=(old,), servers=READY))
        decision = decide(where)
        assert decision.wanted.workers == {}
        assert unwanted_jobs(decision, where) == (old,)
        assert decision.problem == Problem("WorkerRestarting", "waiting for pod old to be gone")

    def test_then_the_next_number_is_started_with_its_failures_forgotten(self) -> None:
        decision = decide(self.restarted(Observed(servers=READY)))
        assert decision.wanted.workers == {0: 5}
        assert decision.facts is not None
        (record,) = decision.facts.attempts
        assert (record.count, record.without_progress) == (5, 0)
        assert decision.facts.restart_served == "once"

    def test_a_run_that_was_finishing_works_again_and_its_old_finish_goes(self) -> None:
        status = planned(attempts=[Attempts(worker=0, count=1, succeeded=True)], workers_hash=self.OLD)
        finish = job(ended_pod(0, finish_message(100)), state=JobState.SUCCEEDED)
        where = situation(status, Observed(servers=READY, finish=finish), restart="once")
        decision = decide(where)
        assert decision.wanted.workers == {0: 2}
        assert unwanted_jobs(decision, where) == (finish,)

    def test_another_number_of_workers_waits_for_every_pod_of_the_old_ones(self) -> None:
        old = job(pod("old"), attempt=1, workers_hash=self.OLD)
        status = planned(attempts=[Attempts(worker=0, count=1)], workers_hash=self.OLD)
        where = situation(status, Observed(workers=(old,), servers=READY), generation={"workers": 3})
        assert decide(where).wanted.workers == {}
        assert unwanted_jobs(decide(where), where) == (old,)
        gone = replace(where, seen=Observed(servers=READY))
        assert decide(gone).wanted.workers == {0: 2, 1: 1, 2: 1}

    def test_the_first_word_there_is_asks_for_nothing(self) -> None:
        decision = decide(situation(planned(), Observed(servers=READY), restart="from-the-start"))
        assert decision.wanted.workers == {0: 1}


def test_a_worker_that_was_heard_before_its_server_went_is_told_of_in_the_first_pass_too() -> None:
    """The counts that this pass records are no reason for the next pass to see another problem."""
    seen = Observed(servers=servers(), known={"0/1": progress(3)})
    first = decide(situation(doing(count=1), seen, endpoints=()))
    recorded = doing(count=1).model_copy(update={"progress": progress(3).progress})
    second = decide(situation(recorded, seen, endpoints=()))
    assert (first.phase, first.problem) == (second.phase, second.problem)
    assert first.problem is not None
    assert first.problem.reason == "ServersNotReady"
