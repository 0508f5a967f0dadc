"""`python -m draftmill_jobs.train config.json`: one process of a training, started by hand or by torchrun."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from types import FrameType

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.errors import JobError
from draftmill_jobs.main import set_up_logging
from draftmill_jobs.train.loop import StepReport
from draftmill_jobs.train.settings import TrainConfig
from draftmill_jobs.train.store_rows import StoreRows
from draftmill_jobs.train.training import train
from draftmill_jobs.train.world import joined

log = logging.getLogger("draftmill_jobs.train")


def run(config: TrainConfig) -> ExitCode:
    """Trains; SIGTERM saves and ends with the code that is retried."""
    stopped = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    try:
        rows = StoreRows.open(Path(config.store), config.training.max_row_tokens)
        with joined(config.gpus_per_node) as world:
            report = log_step if world.is_first else _say_nothing
            outcome = train(config, rows, rows.shape, world, should_stop=lambda: stopped, report=report)
    except JobError as error:
        log.error("%s: %s", error.reason, error.message)  # noqa: TRY400 - said in a sentence, no trace
        return error.exit_code
    return ExitCode.DONE if outcome.finished else ExitCode.INTERRUPTED


def log_step(report: StepReport) -> None:
    """One line for each step, and one for an evaluation."""
    log.info(
        "step %d/%d epoch %d: loss %s, learning rate %.2e, gradient %.3f, %.0f tok/s, data wait %.1f %%",
        report.step,
        report.total,
        report.epoch,
        " ".join(f"{loss:.4f}" for loss in report.losses),
        report.learning_rate,
        report.gradient_norm,
        report.tokens_per_second,
        100 * report.data_wait,
    )
    if (found := report.evaluation) is not None:
        shares = " ".join(f"{share:.3f}" for share in found.acceptance.by_position)
        log.info(
            "%s %.3f over %d cycles, by position %s",
            found.yardstick,
            found.figure,
            found.acceptance.cycles,
            shares,
        )


def _say_nothing(_report: StepReport) -> None:
    return


def main(arguments: list[str] | None = None) -> int:
    """The program. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="draftmill_jobs.train", description="Trains a drafter.")
    parser.add_argument("config", type=Path, help="a TrainConfig as JSON")
    chosen = parser.parse_args(arguments)
    set_up_logging()
    return run(TrainConfig.model_validate_json(chosen.config.read_text()))


if __name__ == "__main__":
    sys.exit(main())
