"""A trained drafter is measured on one server after the other, before the finish."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill_api.progress import TerminationMessage
from draftmill_operator.observe.store import Kind, run_uid
from draftmill_operator.run import EVALUATIONS, Role
from tests.support.draftertrains import train_evaluation
from tests.support.played import refusal_message
from tests.unit.operator.test_operator_training import at_work, training
from tests.unit.operator.world.controllers import role
from tests.unit.operator.world.kubelet import EVALUATION_SAYS
from tests.unit.operator.world.pipeline import TRAIN, Pipeline

EVALUATION: dict[str, Any] = {"server": {"engine": "VLLM", "image": "vllm:1", "gpus": 8}}


def living(world: Pipeline) -> set[str]:
    """Roles of the run's pods that run something."""
    return {what for what in Role if world.running(TRAIN, what)}


def jobs(world: Pipeline) -> list[str]:
    """Names of the Jobs of the evaluation."""
    uid = world.uid(TRAIN)
    found = [raw for raw in world.server.all(Kind.JOB) if run_uid(raw) == uid and role(raw) in EVALUATIONS]
    return sorted(raw["metadata"]["name"] for raw in found)


def test_the_plain_server_is_asked_first_then_the_one_with_the_drafter_then_all_is_counted() -> None:
    world = training(evaluation=EVALUATION)
    together = list[set[str]]()

    def ended() -> bool:
        together.append(living(world))
        return world.status(TRAIN).get("phase") == "Succeeded"

    world.until(ended)
    assert world.kubelet.training.evaluated == ["plain", "drafting"]
    assert all(len(roles) <= 1 for roles in together), "only one of them holds GPUs at a time"
    status = world.status(TRAIN)
    assert status["evaluation"] == train_evaluation().to_json()
    (complete,) = [item for item in status["conditions"] if item["type"] == "Complete"]
    assert complete["message"] == "the drafter after 6 steps, acceptance length 2.41, 1.62 times as fast"


def test_without_an_evaluation_nothing_is_served() -> None:
    world = training()
    world.until_phase(TRAIN, "Succeeded")
    assert (world.kubelet.training.evaluated, jobs(world)) == ([], [])
    assert "evaluation" not in world.status(TRAIN)


def test_the_run_is_finishing_while_it_is_evaluated_and_its_server_needs_no_condition() -> None:
    world = training(evaluation=EVALUATION)
    world.until_runs(TRAIN, Role.EVALUATE_PLAIN)
    assert world.status(TRAIN)["phase"] == "Finishing"
    assert world.condition(TRAIN, "ServersReady") == ("True", "NotNeeded")


@pytest.mark.parametrize("step", EVALUATIONS)
def test_a_step_that_refuses_ends_the_evaluation_and_the_drafter_is_published_without_figures(
    step: Role,
) -> None:
    world = training(evaluation=EVALUATION)
    pod = world.until_runs(TRAIN, step)
    world.kubelet.end(pod, 2, refusal_message("NotDrafting", "it counts no draft cycles"))
    world.until_phase(TRAIN, "Succeeded")
    status = world.status(TRAIN)
    assert status["output"]["vllm"] == "drafters/k25/drafter/vllm"
    assert "evaluation" not in status
    assert world.condition(TRAIN, "Evaluated") == ("False", "NotDrafting")
    assert world.condition(TRAIN, "Complete") == ("True", "NotEvaluated")
    said = "the drafter was not evaluated: NotDrafting: it counts no draft cycles"
    assert (status["reason"], status["message"]) == ("NotEvaluated", said)
    assert living(world) == set()


def test_a_step_that_fails_too_often_ends_the_evaluation_and_not_the_run() -> None:
    world = training(evaluation=EVALUATION, backoffLimit=1)

    def fail() -> bool:
        for pod in world.running(TRAIN, Role.EVALUATE_PLAIN):
            world.kubelet.end(pod, 1, "the server does not answer")
        return world.status(TRAIN).get("phase") == "Succeeded"

    world.until(fail)
    assert world.condition(TRAIN, "Evaluated") == ("False", "EvaluationFailed")
    assert world.kubelet.training.evaluated == []


def test_a_server_that_never_answers_ends_the_evaluation_and_its_pod_goes() -> None:
    world = training(evaluation=EVALUATION, backoffLimit=2)
    pod = world.until_runs(TRAIN, Role.EVALUATE_DRAFT)
    world.kubelet.crash_server(pod, times=2)
    world.settle()
    assert world.condition(TRAIN, "Evaluated") == ("False", "Evaluating")
    world.kubelet.crash_server(world.server.objects[Kind.POD][pod["metadata"]["name"]], times=3)
    world.settle()
    world.until_phase(TRAIN, "Succeeded")
    assert world.condition(TRAIN, "Evaluated") == ("False", "EvaluationFailed")
    assert "the server with the drafter ended 3 times before it answered" in world.status(TRAIN)["message"]
    assert living(world) == set()
    assert world.kubelet.training.evaluated == ["plain"]


def test_an_evaluation_that_was_given_up_is_not_taken_up_again_by_a_resumed_run() -> None:
    world = training(evaluation=EVALUATION, backoffLimit=0)
    world.kubelet.crash_server(world.until_runs(TRAIN, Role.EVALUATE_PLAIN), times=1)
    world.settle()
    world.until_runs(TRAIN, Role.FINISH)
    world.edit(TRAIN, suspend=True)
    world.until_phase(TRAIN, "Suspended")
    world.start_operator()
    world.edit(TRAIN, suspend=False)
    world.until_phase(TRAIN, "Succeeded")
    assert world.condition(TRAIN, "Evaluated") == ("False", "EvaluationFailed")
    assert world.kubelet.training.evaluated == []


def test_a_restart_of_the_training_evaluates_again_what_could_not_be_evaluated() -> None:
    world = at_work(evaluation=EVALUATION, backoffLimit=0)
    world.kubelet.crash_server(world.until_runs(TRAIN, Role.EVALUATE_PLAIN), times=1)
    world.settle()
    world.until_runs(TRAIN, Role.FINISH)
    world.edit(TRAIN, restart="again")
    world.until_phase(TRAIN, "Succeeded")
    assert world.condition(TRAIN, "Evaluated") == ("True", "Evaluated")


def test_the_status_says_which_server_is_asked_and_how_far_that_is() -> None:
    world = training(evaluation=EVALUATION)
    said = list[str]()

    def listen() -> bool:
        status = world.status(TRAIN)
        if status.get("phase") == "Finishing" and status["message"] not in said[-1:]:
            said.append(status["message"])
        return status.get("phase") == "Succeeded"

    world.until(listen)
    for number, server in ((1, "the plain server"), (2, "the server with the drafter")):
        assert f"{server} ({number} of 2) is about to start" in said
        assert f"{server} ({number} of 2) is asked held-out prompts: {EVALUATION_SAYS}" in said
    assert world.condition(TRAIN, "Evaluated") == ("True", "Evaluated")


def test_a_training_that_is_not_to_be_evaluated_has_no_such_condition() -> None:
    world = training()
    world.until_phase(TRAIN, "Succeeded")
    assert "Evaluated" not in {item["type"] for item in world.status(TRAIN)["conditions"]}


def test_a_suspended_run_frees_the_server_and_does_not_ask_the_one_that_answered_again() -> None:
    world = training(evaluation=EVALUATION)
    world.until_runs(TRAIN, Role.EVALUATE_DRAFT)
    world.edit(TRAIN, suspend=True)
    world.until_phase(TRAIN, "Suspended")
    assert living(world) == set()
    world.edit(TRAIN, suspend=False)
    world.until_phase(TRAIN, "Succeeded")
    assert world.kubelet.training.evaluated == ["plain", "drafting"]


def test_a_step_whose_end_was_not_heard_is_done_again() -> None:
    world = training(evaluation=EVALUATION)
    pod = world.until_runs(TRAIN, Role.EVALUATE_PLAIN)
    world.kubelet.end(pod, 0, TerminationMessage())
    world.server.remove(Kind.POD, pod["metadata"]["name"])
    world.until_phase(TRAIN, "Succeeded")
    assert world.kubelet.training.evaluated == ["plain", "drafting"]


def test_a_restart_of_the_training_evaluates_what_it_comes_to_then() -> None:
    world = at_work(evaluation=EVALUATION)
    world.until_runs(TRAIN, Role.EVALUATE_DRAFT)
    world.edit(TRAIN, restart="again")
    world.until_phase(TRAIN, "Succeeded")
    assert world.kubelet.training.evaluated == ["plain", "plain", "drafting"]
