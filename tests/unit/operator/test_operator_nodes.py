"""Nodes that refuse pods: when they are left out, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from draftmill_operator.decide.nodes import rejected_to_clean
from draftmill_operator.decide.rules import decide
from draftmill_operator.observe.types import Observed, Problem
from tests.unit.operator.builders import SERVER, START, later, planned, pod, servers, situation


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
