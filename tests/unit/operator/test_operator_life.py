"""Stop, go, end, pause and restart: which rule decides, and what is recorded."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.status import (
    Attempts,
    ClockHand,
    Condition,
    ConditionStatus,
    Pause,
    Phase,
    RunClock,
    SynthRunStatus,
)
from draftmill_operator.decide.nodes import rejected_to_clean
from draftmill_operator.decide.removals import unwanted_jobs
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import JobState, Observed, ObservedServers, Problem
from draftmill_operator.render.jobs import workers_hash
from tests.support.played import finish_message
from tests.unit.operator.builders import (
    NOW,
    doing,
    ended_pod,
    job,
    planned,
    pod,
    progress,
    servers,
    situation,
    spec,
)

SERVER = {"engine": "SGLang", "image": "i"}
READY = servers(pod("server", node="n"))
START = "2026-01-01T12:00:00Z"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def over(kind: str, **status: Any) -> SynthRunStatus:
    condition = Condition(
        type=kind,
        status=ConditionStatus.TRUE,
        reason="R",
        last_transition_time=START,
        observed_generation=1,
    )
    return planned(conditions=[condition], completion_time=START, **status)


def paused_at(seconds: float, *, pause: Pause | None = None, **parts: Any) -> Situation:
    seen = Observed(
        workers=(job(pod(), attempt=1),),
        servers=READY,
        progress={0: progress(40, WorkerState.PAUSED, message="5.4 % failed", recent_errors=27)},
    )
    status = doing(count=1).model_copy(update={"pause": pause})
    return situation(status, seen, now=later(seconds), **parts)


PAUSE = Pause(since=START, message="5.4 % failed", recent_errors=27)
FREED = PAUSE.model_copy(update={"freed": True})


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


class TestDeadlines:
    def clock(self, **fields: Any) -> SynthRunStatus:
        return doing(count=1).model_copy(update={"clock": RunClock(since=START, **fields)})

    def active(self, seconds: float, **fields: Any) -> Decision:
        status = self.clock(running=ClockHand.ACTIVE, placed=True, **fields)
        return decide(
            situation(status, Observed(servers=READY), now=later(seconds), activeDeadline="1h", endpoints=())
        )

    def test_a_run_fails_when_its_active_clock_reaches_the_deadline_and_not_before(self) -> None:
        assert self.active(3599).failed is None
        decision = self.active(3600)
        assert decision.failed == Problem("DeadlineExceeded", "the run was active for 1h, its activeDeadline")

    def test_it_looks_again_just_then(self) -> None:
        assert self.active(3000).requeue_after == 600

    def test_what_was_on_the_clock_before_counts(self) -> None:
        assert self.active(600, active_seconds=3000).failed is not None

    def test_the_clock_stands_still_while_suspended(self) -> None:
        status = self.clock(running=ClockHand.ACTIVE, placed=True)
        stopped = decide(situation(status, now=later(1800), suspend=True, activeDeadline="1h"))
        assert stopped.facts is not None
        assert stopped.facts.clock == RunClock(since="2026-01-01T12:30:00Z", active_seconds=1800, placed=True)
        assert stopped.requeue_after is None
        status = doing(count=1).model_copy(update={"clock": stopped.facts.clock})
        assert decide(situation(status, now=later(90_000), activeDeadline="1h")).failed is None

    def test_the_clock_stands_still_while_paused(self) -> None:
        decision = decide(paused_at(0))
        assert decision.facts is not None
        assert decision.facts.clock.running is None

    def test_the_pending_clock_runs_until_the_first_server_has_a_node(self) -> None:
        waiting = decide(situation(planned(), Observed(servers=servers(pod("s", ready=False))), endpoints=()))
        assert waiting.facts is not None
        assert (waiting.facts.clock.running, waiting.facts.clock.placed) == (ClockHand.PENDING, False)
        placed = decide(situation(planned(), Observed(servers=READY), endpoints=()))
        assert placed.facts is not None
        assert (placed.facts.clock.running, placed.facts.clock.placed) == (ClockHand.ACTIVE, True)

    def test_a_pod_that_its_node_refused_was_not_placed(self) -> None:
        refused = pod("s", node="sick", rejected=True, ended=True, ready=False)
        decision = decide(situation(planned(), Observed(servers=servers(refused)), endpoints=()))
        assert decision.facts is not None
        assert decision.facts.clock.running is ClockHand.PENDING

    def test_with_given_endpoints_the_first_worker_has_to_be_placed(self) -> None:
        given = [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}]
        seen = Observed(workers=(job(pod(node="n"), attempt=1),))
        decision = decide(situation(planned(), seen, given=given))
        assert decision.facts is not None
        assert decision.facts.clock.running is ClockHand.ACTIVE

    def test_a_run_that_is_never_placed_fails_with_what_it_waited_for(self) -> None:
        status = planned(clock=RunClock(running=ClockHand.PENDING, since=START), message="0/1 nodes")
        parts: dict[str, Any] = {"pendingDeadline": "10m", "endpoints": ()}
        assert decide(situation(status, now=later(599), **parts)).failed is None
        failed = decide(situation(status, now=later(600), **parts)).failed
        assert failed is not None
        assert failed.reason == "PendingDeadlineExceeded"
        assert failed.message.endswith("last: 0/1 nodes")

    def test_once_placed_the_pending_deadline_is_met_for_good(self) -> None:
        status = planned(clock=RunClock(since=START, pending_seconds=900, placed=True))
        assert decide(situation(status, now=later(9999), pendingDeadline="10m")).failed is None

    def test_an_unchanged_clock_is_not_written_anew(self) -> None:
        first = self.clock(running=ClockHand.ACTIVE, placed=True)
        decision = decide(situation(first, Observed(servers=READY), now=later(60)))
        assert decision.facts is not None
        assert decision.facts.clock == first.clock


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


class TestPaused:
    def test_the_workers_stay_and_the_run_looks_when_servers_are_to_be_freed(self) -> None:
        decision = decide(paused_at(0))
        assert decision.phase is Phase.PAUSED
        assert decision.wanted.workers == {0: 1}
        assert decision.facts is not None
        assert decision.facts.pause == PAUSE
        assert decision.requeue_after == 900

    def test_after_the_time_workers_and_servers_go(self) -> None:
        decision = decide(paused_at(900, pause=PAUSE))
        assert (decision.phase, decision.wanted) == (Phase.PAUSED, Wanted(config=True))
        assert decision.facts is not None
        assert decision.facts.pause == FREED

    def test_freed_it_waits_and_the_end_of_its_workers_starts_nothing(self) -> None:
        seen = Observed(workers=(job(ended_pod(75), attempt=1),))
        status = doing(count=1).model_copy(update={"pause": FREED})
        decision = decide(situation(status, seen, endpoints=()))
        assert (decision.phase, decision.wanted) == (Phase.PAUSED, Wanted(config=True))

    @pytest.mark.parametrize(
        ("parts", "goes_on"),
        [
            ({}, False),
            ({"generation": {"errorPolicy": {"pausePercent": 4}}}, False),
            ({"generation": {"errorPolicy": {"pausePercent": 6}}}, True),
            ({"generation": {"errorPolicy": {"window": 600}}}, True),
            ({"resumeToken": "again"}, True),
        ],
    )
    def test_freed_it_goes_on_when_the_policy_allows_it_or_it_is_told_to(
        self, parts: dict[str, Any], goes_on: bool
    ) -> None:
        status = doing(count=1).model_copy(update={"pause": FREED})
        decision = decide(situation(status, endpoints=(), **parts))
        assert (decision.phase is not Phase.PAUSED) == goes_on
        assert decision.facts is not None
        assert (decision.facts.pause is None) == goes_on

    def test_a_worker_that_goes_on_ends_the_pause(self) -> None:
        seen = Observed(workers=(job(pod(), attempt=1),), servers=READY, progress={0: progress(41)})
        status = doing(count=1).model_copy(update={"pause": PAUSE})
        decision = decide(situation(status, seen))
        assert decision.phase is Phase.RUNNING
        assert decision.facts is not None
        assert decision.facts.pause is None

    def test_one_of_several_paused_workers_does_not_pause_the_run(self) -> None:
        seen = Observed(
            workers=(job(pod("a"), attempt=1), job(pod("b"), attempt=1, worker=1)),
            servers=READY,
            progress={0: progress(40, WorkerState.PAUSED, worker="0/2"), 1: progress(41, worker="1/2")},
        )
        status = planned(attempts=[Attempts(worker=0, count=1), Attempts(worker=1, count=1)])
        assert decide(situation(status, seen, generation={"workers": 2})).phase is Phase.RUNNING


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
    OLD = workers_hash(spec())

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


class TestNodesThatRefuse:
    def refused(self, name: str, node: str = "sick") -> Any:
        problem = Problem("UnexpectedAdmissionError", "no healthy devices present")
        return pod(name, node=node, rejected=True, ended=True, ready=False, started=False, problem=problem)

    def test_a_node_that_refuses_three_pods_is_excluded(self) -> None:
        two = servers(self.refused("a"), self.refused("b"), pod("c", ready=False))
        assert decide(situation(planned(), Observed(servers=two), endpoints=())).excluded_nodes == ()
        three = servers(self.refused("a"), self.refused("b"), self.refused("c"))
        decision = decide(situation(planned(), Observed(servers=three), endpoints=()))
        assert decision.excluded_nodes == ("sick",)
        assert decision.problem is not None
        assert decision.problem.reason == "NodeRejects"
        assert "UnexpectedAdmissionError: no healthy devices" in decision.problem.message

    def test_while_another_server_works_no_more_are_asked_for_and_nothing_is_replaced(self) -> None:
        pods = servers(pod("good", node="well"), *(self.refused(name) for name in "abc"))
        decision = decide(situation(planned(), Observed(servers=pods), server=SERVER | {"replicas": 2}))
        assert decision.excluded_nodes == ()
        assert decision.wanted.replicas == 1

    def test_more_are_asked_for_again_when_the_refusals_are_ten_minutes_old(self) -> None:
        pods = servers(pod("good", node="well"), *(self.refused(name) for name in "abc"))
        where = situation(planned(), Observed(servers=pods), server=SERVER | {"replicas": 2}, now=later(590))
        held = decide(where)
        assert (held.wanted.replicas, held.requeue_after) == (1, 10)
        assert rejected_to_clean(where) == ()
        asked = replace(where, now=later(600))
        assert decide(asked).wanted.replicas is None
        assert [each.name for each in rejected_to_clean(asked)] == ["a", "b", "c"]

    def test_it_is_tried_again_after_ten_minutes(self) -> None:
        excluded = [{"name": "sick", "reason": "R", "since": START}]
        status = planned(excluded_nodes=excluded)
        before = decide(situation(status, endpoints=(), now=later(599)))
        assert (before.excluded_nodes, before.requeue_after) == (("sick",), 1)
        assert decide(situation(status, endpoints=(), now=later(600))).excluded_nodes == ()


def test_a_worker_that_was_heard_before_its_server_went_is_told_of_in_the_first_pass_too() -> None:
    """The counts that this pass records are no reason for the next pass to see another problem."""
    seen = Observed(servers=servers(), known={"0/1": progress(3)})
    first = decide(situation(doing(count=1), seen, endpoints=()))
    recorded = doing(count=1).model_copy(update={"progress": progress(3).progress})
    second = decide(situation(recorded, seen, endpoints=()))
    assert (first.phase, first.problem) == (second.phase, second.problem)
    assert first.problem is not None
    assert first.problem.reason == "ServersNotReady"
