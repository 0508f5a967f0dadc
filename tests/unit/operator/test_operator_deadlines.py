"""The clocks of activeDeadline and pendingDeadline: when they run, stand still, and end a run."""

from __future__ import annotations

from typing import Any

from draftmill_api.v1alpha1.runstatus import ClockHand, RunClock
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Decision
from draftmill_operator.observe.types import Observed, Problem
from tests.unit.operator.builders import (
    READY,
    START,
    doing,
    job,
    later,
    paused_at,
    planned,
    pod,
    servers,
    situation,
)


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

    def test_the_pending_clock_runs_until_the_first_server_is_started(self) -> None:
        idle = pod("s", ready=False, node="n", started=False, main_started=False)
        waiting = decide(situation(planned(), Observed(servers=servers(idle)), endpoints=()))
        assert waiting.facts is not None
        assert (waiting.facts.clock.running, waiting.facts.clock.placed) == (ClockHand.PENDING, False)
        placed = decide(situation(planned(), Observed(servers=READY), endpoints=()))
        assert placed.facts is not None
        assert (placed.facts.clock.running, placed.facts.clock.placed) == (ClockHand.ACTIVE, True)

    def test_a_pod_that_its_node_refused_was_not_placed(self) -> None:
        refused = pod("s", node="sick", rejected=True, ended=True, ready=False, main_started=False)
        decision = decide(situation(planned(), Observed(servers=servers(refused)), endpoints=()))
        assert decision.facts is not None
        assert decision.facts.clock.running is ClockHand.PENDING

    def test_a_server_whose_image_cannot_be_pulled_ends_the_run_at_its_pending_deadline(self) -> None:
        status = planned(clock=RunClock(running=ClockHand.PENDING, since=START), message="not found")
        problem = Problem("ImagePullBackOff", "not found")
        idle = pod("s", ready=False, node="n", started=False, main_started=False, problem=problem)
        parts: dict[str, Any] = {"pendingDeadline": "10m", "endpoints": ()}
        waiting = decide(situation(status, Observed(servers=servers(idle)), now=later(599), **parts))
        assert (waiting.failed, waiting.problem) == (None, problem)
        failed = decide(situation(status, Observed(servers=servers(idle)), now=later(600), **parts)).failed
        assert failed is not None
        assert failed.reason == "PendingDeadlineExceeded"
        assert failed.message.endswith("last: not found")

    def test_with_given_endpoints_the_first_worker_has_to_be_started(self) -> None:
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
        idle = pod("s", ready=False, started=False, main_started=False)
        again = situation(
            status, Observed(servers=servers(idle)), now=later(9999), pendingDeadline="10m", endpoints=()
        )
        decision = decide(again)
        assert decision.failed is None
        assert decision.facts is not None
        assert decision.facts.clock.running is ClockHand.ACTIVE

    def test_an_unchanged_clock_is_not_written_anew(self) -> None:
        first = self.clock(running=ClockHand.ACTIVE, placed=True)
        decision = decide(situation(first, Observed(servers=READY), now=later(60)))
        assert decision.facts is not None
        assert decision.facts.clock == first.clock
