"""What a trainer says of its progress."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from draftmill_api.drafter import DrafterAcceptance
from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.trainstatus import TrainProgress, Yardstick
from draftmill_jobs.shared.http import ProgressCollector
from draftmill_jobs.train.board import Board, evaluation_line
from draftmill_jobs.train.checkpoint import TrainState
from draftmill_jobs.train.evaluation import Evaluation
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.metrics import Acceptance
from draftmill_jobs.train.training import Beginning

GREEDY, SAMPLED = Yardstick.ACCEPTANCE_LENGTH, Yardstick.TEACHER_AGREEMENT


def board(*, step: int = 0, best: DrafterAcceptance | None = None) -> Board:
    made = Board(run_uid="uid", worker="0/1", attempt=2, started=0.0, config_hash="hash")
    state = TrainState(
        step=step, identity="i", tokens=100 * step, best=best, best_step=step if best else None
    )
    made.begun(Beginning(state, total=40, coverage=0.987), 0.0)
    return made


def report(step: int, *, loss: float = 2.0, evaluation: Evaluation | None = None) -> StepReport:
    state = TrainState(step=step, identity="i", tokens=100 * step)
    return StepReport(
        step=step,
        total=40,
        epoch=step // 20,
        losses=(loss, loss + 1),
        learning_rate=1e-4,
        gradient_norm=0.5,
        data_wait=0.021,
        evaluation=evaluation,
        state=state,
        saved_step=3,
    )


def evaluation(yardstick: Yardstick) -> Evaluation:
    return Evaluation(yardstick, Acceptance(10, (8, 4), (80, 60), (100, 100)), (1.0, 2.0))


def test_figures_are_those_of_the_last_steps_and_rates_those_of_this_start() -> None:
    now = board(step=10)
    for step, loss in ((11, 2.0), (12, 4.0)):
        now.stepped(report(step, loss=loss), float(step - 10))
    progress = now.train_progress(2.0)

    assert (progress.step, progress.total, progress.epoch, progress.saved_step) == (12, 40, 1, 3)
    assert progress.loss == "3.500"
    assert (progress.tokens_per_second, progress.data_wait, progress.eta) == (100, "2.1", "28s")
    assert (progress.tokens, progress.coverage) == (1200, "98.7")


@pytest.mark.parametrize(("yardstick", "figures"), [(GREEDY, ("2.20", "")), (SAMPLED, ("", "2.20"))])
def test_a_figure_is_named_as_what_it_is(yardstick: Yardstick, figures: tuple[str, str]) -> None:
    now = board()
    now.stepped(report(1, evaluation=evaluation(yardstick)), 1.0)
    progress = now.train_progress(1.0)

    assert (progress.acceptance_length, progress.teacher_agreement) == figures
    assert ("no acceptance length" in evaluation_line(evaluation(yardstick).measured(), 1)) is bool(
        figures[1]
    )


def test_a_training_that_goes_on_tells_what_was_measured_before() -> None:
    best = evaluation(GREEDY).measured()
    progress = board(step=20, best=best).train_progress(1.0)

    assert (progress.best, progress.best_step, progress.acceptance_length) == ("2.20", 20, "2.20")
    assert progress.best_checkpoint == "checkpoints/step-00000020"


def test_nothing_is_promised_once_it_has_ended() -> None:
    now = board()
    now.stepped(report(1), 1.0)
    now.state = WorkerState.DONE
    progress = now.train_progress(2.0)

    assert (progress.tokens_per_second, progress.eta, progress.data_wait) == (None, "", "")


def test_before_the_first_step_it_says_what_it_does() -> None:
    waiting = Board(run_uid="uid", worker="0/1", attempt=1, started=0.0, config_hash="hash")
    waiting.say("reading the store")

    assert waiting.progress(1.0).message == "reading the store"
    assert waiting.progress(1.0).training == TrainProgress()


def test_the_log_has_the_loss_of_every_step_of_training_time_test() -> None:
    now = board()
    now.stepped(report(7), 7.0)

    assert "step 7/40, epoch 1, loss by step 2.0000 3.0000" in now.line(7.0)
    assert "100 tok/s, data wait 2.1 %, elapsed: 7s, ETA: 33s" in now.line(7.0)


def test_the_log_has_what_was_measured_last_in_every_line() -> None:
    now = board()
    now.stepped(report(7, evaluation=evaluation(GREEDY)), 7.0)
    now.stepped(report(8), 8.0)

    assert "last simulated acceptance length 2.200, accuracy by step 0.800 0.600, learning rate" in now.line(
        8.0
    )


def test_prometheus_reads_the_figures_that_there_are() -> None:
    now = board()
    now.stepped(report(7, evaluation=evaluation(GREEDY)), 7.0)
    registry = CollectorRegistry()
    registry.register(ProgressCollector(now.progress(7.0)))
    text = generate_latest(registry).decode()

    assert "draftmill_training_step 7.0" in text
    assert "draftmill_acceptance_length 2.2" in text
    assert "draftmill_teacher_agreement" not in text
