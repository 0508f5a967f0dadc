"""Nodes that refuse pods: when they are left out, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.decide.nodes import rejected_to_clean
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.kinds.base import BESIDE
from draftmill_operator.observe.types import JobState, Observed, ObservedJob, ObservedPod, Problem
from draftmill_operator.run import Role
from draftmill_operator.status.summarise import summarise
from tests.unit.operator.builders import (
    NOW,
    READY,
    SERVER,
    START,
    doing,
    ended_pod,
    job,
    later,
    planned,
    pod,
    servers,
    situation,
)
from tests.unit.operator.test_operator_extract_rendering import EXTRACT, GPU_SERVER, extract, pod_of
from tests.unit.operator.test_operator_extract_rendering import job as extract_job
from tests.unit.operator.world.kubelet import avoided


def refused(name: str, node: str = "sick") -> ObservedPod:
    problem = Problem("UnexpectedAdmissionError", "no healthy devices present")
    return pod(name, node=node, rejected=True, ended=True, ready=False, started=False, problem=problem)


def away_from(node: str, role: Role = Role.WORKER) -> dict[str, str]:
    return {"role": role, "name": node, "reason": "R", "since": START}


class TestNodesThatRefuse:
    def test_a_node_that_refuses_three_pods_is_excluded(self) -> None:
        two = servers(refused("a"), refused("b"), pod("c", ready=False))
        assert decide(situation(planned(), Observed(servers=two), endpoints=())).kept_from(Role.SERVER) == ()
        three = servers(refused("a"), refused("b"), refused("c"))
        decision = decide(situation(planned(), Observed(servers=three), endpoints=()))
        assert decision.kept_from(Role.SERVER) == ("sick",)
        assert decision.problem is not None
        assert decision.problem.reason == "NodeRejects"
        assert "UnexpectedAdmissionError: no healthy devices" in decision.problem.message

    def test_while_another_server_works_no_more_are_asked_for_and_nothing_is_replaced(self) -> None:
        pods = servers(pod("good", node="well"), *(refused(name) for name in "abc"))
        decision = decide(situation(planned(), Observed(servers=pods), server=SERVER | {"replicas": 2}))
        assert decision.kept_from(Role.SERVER) == ()
        assert decision.wanted.replicas == 1

    def test_more_are_asked_for_again_when_the_refusals_are_ten_minutes_old(self) -> None:
        pods = servers(pod("good", node="well"), *(refused(name) for name in "abc"))
        where = situation(planned(), Observed(servers=pods), server=SERVER | {"replicas": 2}, now=later(590))
        held = decide(where)
        assert (held.wanted.replicas, held.requeue_after) == (1, 10)
        assert rejected_to_clean(where) == ()
        asked = replace(where, now=later(600))
        assert decide(asked).wanted.replicas is None
        assert [each.name for each in rejected_to_clean(asked)] == ["a", "b", "c"]

    def test_it_is_tried_again_after_ten_minutes(self) -> None:
        status = planned(excluded_nodes=[away_from("sick", Role.SERVER)])
        before = decide(situation(status, endpoints=(), now=later(599)))
        assert (before.kept_from(Role.SERVER), before.requeue_after) == (("sick",), 1)
        assert decide(situation(status, endpoints=(), now=later(600))).kept_from(Role.SERVER) == ()


class TestNodesThatRefuseWorkersWithTheirServers:
    def seen(self, *pods: ObservedPod, excluded: tuple[str, ...] = ()) -> Situation:
        """An ExtractRun whose only worker's first attempt has had these pods."""
        run = extract(server=GPU_SERVER)
        facts = {
            "attempts": [Attempts(worker=0, count=1)],
            "excluded_nodes": [away_from(name) for name in excluded],
        }
        status = type(run.status).model_validate(run.status.model_dump() | facts)
        seen = Observed(workers=(job(*pods, attempt=1),))
        return Situation(EXTRACT, replace(run, status=status), seen, (BESIDE,), (), NOW)

    def test_the_job_tries_again_and_no_attempt_is_lost(self) -> None:
        where = self.seen(refused("a"), refused("b"))
        decision = decide(where)
        assert decision.kept_from(Role.WORKER) == ()
        assert decision.wanted.workers == {0: 1}
        assert decision.problem == Problem("UnexpectedAdmissionError", "no healthy devices present")
        told = {each.type: each for each in summarise(where, decision).conditions}["ServersReady"]
        assert (told.status.value, told.reason) == ("False", "UnexpectedAdmissionError")

    def test_after_three_refusals_the_next_attempt_keeps_away_and_no_failure_is_counted(self) -> None:
        decision = decide(self.seen(refused("a"), refused("b"), refused("c")))
        assert decision.kept_from(Role.WORKER) == ("sick",)
        assert decision.wanted.workers == {}
        assert decision.facts is not None
        (attempts,) = decision.facts.attempts
        assert (attempts.last_failed_attempt, attempts.without_progress) == (1, 0)

    def test_a_pod_that_its_job_has_made_meanwhile_goes_with_it(self) -> None:
        unplaced = pod("d", ready=False, started=False)
        decision = decide(self.seen(refused("a"), refused("b"), refused("c"), unplaced))
        assert (decision.kept_from(Role.WORKER), decision.wanted.workers) == (("sick",), {})

    def test_a_pod_that_found_another_node_meanwhile_stays(self) -> None:
        placed = pod("d", node="well", ready=False, started=False)
        decision = decide(self.seen(refused("a"), refused("b"), refused("c"), placed))
        assert (decision.kept_from(Role.WORKER), decision.wanted.workers) == (("sick",), {0: 1})

    def test_refusals_of_different_nodes_are_not_added_up(self) -> None:
        decision = decide(self.seen(refused("a"), refused("b"), refused("c", node="other")))
        assert (decision.kept_from(Role.WORKER), decision.wanted.workers) == ((), {0: 1})

    def test_an_attempt_of_before_the_exclusion_is_not_tried_there_again(self) -> None:
        decision = decide(self.seen(refused("a"), excluded=("sick",)))
        assert (decision.kept_from(Role.WORKER), decision.wanted.workers) == (("sick",), {})

    def test_a_worker_that_finds_no_other_node_tells_both(self) -> None:
        waiting = pod(ready=False, started=False, problem=Problem("Unschedulable", "0/2 nodes are available"))
        decision = decide(self.seen(waiting, excluded=("sick",)))
        assert decision.problem is not None
        assert decision.problem.reason == "NodeRejects"
        assert "node sick refused" in decision.problem.message
        assert "elsewhere: 0/2 nodes are available" in decision.problem.message

    def test_a_server_that_crashes_elsewhere_is_told_as_such(self) -> None:
        crashed = pod(node="well", ready=False, problem=Problem("ServerCrashed", "exit code 1"))
        decision = decide(self.seen(crashed, excluded=("sick",)))
        assert decision.problem == Problem("ServerCrashed", "exit code 1")

    def test_the_attempts_pods_are_kept_from_it_beside_all_else_that_places_them(self) -> None:
        run = extract(server=GPU_SERVER)
        free = pod_of(extract_job(Role.WORKER, run, on_one_node=True))
        kept = pod_of(extract_job(Role.WORKER, run, on_one_node=True, excluded_nodes=("sick", "ill")))
        assert avoided(kept) == {"sick", "ill"}
        assert kept["affinity"]["podAffinity"] == free["affinity"]["podAffinity"]
        (term,) = kept["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        keys = {expression["key"] for expression in term["matchExpressions"]}
        assert {"nvidia.com/gpu.product", "kubernetes.io/hostname"} <= keys


class TestNodesThatRefuseJobs:
    def planning(self, *pods: ObservedPod, **fields: Any) -> Decision:
        return decide(situation(seen=Observed(plan=job(*pods, **fields))))

    def test_the_plan_tells_why_and_its_job_tries_again(self) -> None:
        decision = self.planning(refused("a"), refused("b"))
        assert (decision.wanted.plan, decision.redo) == (True, None)
        assert decision.problem == Problem("UnexpectedAdmissionError", "no healthy devices present")

    def test_after_three_refusals_the_plan_is_made_anew_and_only_plans_keep_away(self) -> None:
        decision = self.planning(refused("a"), refused("b"), refused("c"))
        assert (decision.wanted.plan, decision.redo, decision.failed) == (False, Role.PLAN, None)
        assert {role: decision.kept_from(role) for role in Role if decision.kept_from(role)} == {
            Role.PLAN: ("sick",)
        }
        assert decision.problem is not None
        assert "node sick refused plan pods (UnexpectedAdmissionError" in decision.problem.message

    def test_a_job_that_ends_by_refusals_is_made_anew_away_from_every_node_that_refused(self) -> None:
        pods = [refused(f"p{number}", node=f"n{number}") for number in range(2)]
        decision = self.planning(*pods, state=JobState.FAILED)
        assert (decision.redo, decision.kept_from(Role.PLAN)) == (Role.PLAN, ("n0", "n1"))

    def test_a_plan_that_went_on_elsewhere_and_failed_there_fails(self) -> None:
        pods = [*(refused(name) for name in "abc"), ended_pod(1, text="oops", created=later(1))]
        decision = self.planning(*pods, state=JobState.FAILED)
        assert decision.failed == Problem("PlanFailed", "exit code 1: oops")

    def test_a_plan_that_waits_for_room_is_made_anew_when_a_node_may_be_tried_again(self) -> None:
        waiting = pod(ready=False, started=False, problem=Problem("Unschedulable", "0/2 nodes are available"))
        seen = Observed(plan=job(waiting, avoided_nodes=("sick",)))
        status = SynthRunStatus.model_validate({"excluded_nodes": [away_from("sick", Role.PLAN)]})
        held = decide(situation(status, seen, now=later(599)))
        assert (held.redo, held.requeue_after) == (None, 1)
        assert held.problem is not None
        assert held.problem.reason == "NodeRejects"
        assert decide(situation(status, seen, now=later(600))).kept_from(Role.PLAN) == ()
        assert decide(situation(None, seen, now=later(600))).redo is Role.PLAN

    @pytest.mark.parametrize(
        ("role", "status", "reason"),
        [(Role.PLAN, {}, "PlanFailed"), (Role.FINISH, {"succeeded": True}, "FinishFailed")],
    )
    def test_a_step_that_every_node_refuses_fails_the_run_when_they_are_tried_again_too_often(
        self, role: Role, status: dict[str, bool], reason: str
    ) -> None:
        waiting = pod(ready=False, started=False, problem=Problem("Unschedulable", "0/2 nodes are available"))
        known = doing(count=1, **status) if status else SynthRunStatus()
        for number in range(4):
            refusing = job(*(refused(name) for name in "abc"), attempt=2 * number)
            decision, _ = self.passes(known, role, refusing)
            if number == 3:
                break
            assert (decision.redo, decision.failed) == (role, None)
            held_up = job(waiting, attempt=2 * number + 1, avoided_nodes=("sick",))
            decision, known = self.passes(known, role, held_up)
            assert (decision.redo, known.steps[0].tried_again) == (role, number + 1)
        assert decision.failed == Problem(
            reason,
            "nodes refuse its pods after they were tried again 3 times; "
            "UnexpectedAdmissionError: no healthy devices present",
        )

    def passes(
        self, status: SynthRunStatus, role: Role, step: ObservedJob
    ) -> tuple[Decision, SynthRunStatus]:
        """The last of two passes over one Job, whose removal is not seen yet; or that which ends the run."""
        seen = Observed(plan=step) if role is Role.PLAN else Observed(finish=step)
        for _ in range(2):
            where = situation(status, seen, backoffLimit=2)
            decision = decide(where)
            after = summarise(where, decision).model_copy(update={"excluded_nodes": []})
            status = SynthRunStatus.model_validate(after.model_dump())
            if decision.failed is not None:
                break
        return decision, status

    def test_a_generator_is_tried_again_elsewhere_and_its_servers_stay(self) -> None:
        seen = Observed(servers=READY, workers=(job(*(refused(name) for name in "abc"), attempt=1),))
        decision = decide(situation(doing(count=1), seen))
        assert (decision.kept_from(Role.WORKER), decision.kept_from(Role.SERVER)) == (("sick",), ())
        assert (decision.wanted.workers, decision.wanted.servers) == ({}, True)
        assert decision.facts is not None
        (attempts,) = decision.facts.attempts
        assert (attempts.last_failed_attempt, attempts.without_progress) == (1, 0)

    @pytest.mark.parametrize(
        ("failures", "limit", "excluded"), [(0, 6, ()), (1, 6, ()), (2, 6, ("sick",)), (0, 0, ("sick",))]
    )
    def test_a_node_that_refuses_a_rank_is_left_out_when_the_worker_cannot_afford_it_any_more(
        self, failures: int, limit: int, excluded: tuple[str, ...]
    ) -> None:
        others = [pod(f"rank-{rank}", node="well", rank=rank) for rank in (0, 2)]
        ranks = job(*others, replace(refused("rank-1"), rank=1), attempt=1, together=True)
        status = doing(count=1, without_progress=failures)
        seen = Observed(servers=READY, workers=(ranks,))
        decision = decide(situation(status, seen, backoffLimit=limit))
        assert (decision.failed, decision.kept_from(Role.WORKER)) == (None, excluded)
        assert decision.facts is not None
        assert decision.facts.attempts[0].without_progress == failures + (not excluded)

    @pytest.mark.parametrize("role", [Role.PLAN, Role.WORKER, Role.FINISH])
    def test_the_next_job_of_each_role_keeps_away_and_says_so(self, role: Role) -> None:
        manifest = extract_job(role, extract(server=GPU_SERVER), excluded_nodes=("sick", "ill"))
        assert avoided(pod_of(manifest)) == {"sick", "ill"}
        assert manifest["metadata"]["annotations"]["draftmill.dev/avoided-nodes"] == "ill,sick"
