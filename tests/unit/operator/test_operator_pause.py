"""A run whose workers hold rows back: it waits, frees its servers, and goes on when it is told to."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.runstatus import Attempts, Pause
from draftmill_api.v1alpha1.status import Phase
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation, Wanted
from draftmill_operator.kinds.base import RunKind
from draftmill_operator.kinds.registry import KINDS
from draftmill_operator.observe.types import Observed, Problem
from tests.unit.operator.builders import (
    READY,
    START,
    doing,
    ended_pod,
    job,
    paused_at,
    planned,
    pod,
    progress,
    situation,
)

PAUSE = Pause(since=START, message="5.4 % failed", recent_errors=27)
FREED = PAUSE.model_copy(update={"freed": True})


def test_only_a_kind_whose_workers_pause_has_a_word_for_going_on() -> None:
    for kind in KINDS.values():
        pauses = type(kind).pause_policy is not RunKind.pause_policy
        assert ("resume_token" in kind.spec_type.model_fields) == pauses, kind.name


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

    def test_a_pause_after_another_word_to_go_on_is_another_pause_though_nobody_saw_it_run(self) -> None:
        decision = decide(paused_at(60, pause=PAUSE, resumeToken="again"))
        assert decision.facts is not None
        assert decision.facts.pause is not None
        assert decision.facts.pause.since != START
        assert decision.facts.pause.resume_token == "again"
        assert decision.requeue_after == 900

    def test_a_pause_keeps_its_beginning_and_tells_the_newest_figures(self) -> None:
        before = PAUSE.model_copy(update={"message": "5.2 % failed", "recent_errors": 26})
        decision = decide(paused_at(60, pause=before))
        assert decision.facts is not None
        assert decision.facts.pause == PAUSE
        assert decision.requeue_after == 840

    def test_one_of_several_paused_workers_does_not_pause_the_run(self) -> None:
        seen = Observed(
            workers=(job(pod("a"), attempt=1), job(pod("b"), attempt=1, worker=1)),
            servers=READY,
            progress={0: progress(40, WorkerState.PAUSED, worker="0/2"), 1: progress(41, worker="1/2")},
        )
        status = planned(attempts=[Attempts(worker=0, count=1), Attempts(worker=1, count=1)])
        assert decide(situation(status, seen, generation={"workers": 2})).phase is Phase.RUNNING


class TestFullVolume:
    FULL = Pause(since=START, reason="StorageFull", message="there is no room")

    def status(self, pause: Pause | None) -> SynthRunStatus:
        return doing(count=1).model_copy(update={"pause": pause})

    def waits_for_room(self, pause: Pause | None = None) -> Situation:
        said = progress(40, WorkerState.STORAGE_FULL, message="there is no room")
        seen = Observed(workers=(job(pod(), attempt=1),), servers=READY, progress={0: said})
        return situation(self.status(pause), seen)

    def test_workers_that_wait_for_room_pause_the_run_and_keep_their_servers(self) -> None:
        decision = decide(self.waits_for_room())
        assert (decision.phase, decision.problem) == (
            Phase.PAUSED,
            Problem("StorageFull", "there is no room"),
        )
        assert decision.wanted.workers == {0: 1}
        assert decision.facts is not None
        assert decision.facts.pause == self.FULL

    def test_a_pause_for_another_reason_is_another_pause(self) -> None:
        decision = decide(self.waits_for_room(pause=PAUSE))
        assert decision.facts is not None
        assert decision.facts.pause == self.FULL

    @pytest.mark.parametrize(("parts", "goes_on"), [({}, False), ({"resumeToken": "again"}, True)])
    def test_freed_it_goes_on_by_a_word_alone_for_nobody_looks_for_room(
        self, parts: dict[str, Any], goes_on: bool
    ) -> None:
        freed = self.FULL.model_copy(update={"freed": True})
        decision = decide(situation(self.status(freed), endpoints=(), **parts))
        assert (decision.phase is not Phase.PAUSED) == goes_on
