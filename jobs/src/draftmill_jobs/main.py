"""`python -m draftmill_jobs plan|generate|finish --config job.yaml`: the steps as a program."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import TerminationMessage, WorkerResult
from draftmill_jobs.errors import JobError
from draftmill_jobs.shared import termination
from draftmill_jobs.shared.config import LoadedConfig, load

log = logging.getLogger(__name__)

GRACE_SECONDS = 25.0


class Step(StrEnum):
    """The steps of a run."""

    PLAN = "plan"
    GENERATE = "generate"
    FINISH = "finish"


def run_step(
    step: Step, config: Path, *, http_port: int | None = None, grace: float = GRACE_SECONDS
) -> ExitCode:
    """Runs one step, leaves its last words for the operator, and says how it ended.

    Args:
        step: Which one.
        config: The job's config file.
        http_port: Where `generate` serves progress; 0 chooses a port, None serves in pods only.
        grace: Seconds that answers in flight may take to finish after SIGTERM.
    """
    try:
        loaded = load(config)
        match step:
            case Step.PLAN:
                code, message = _plan(loaded)
            case Step.GENERATE:
                code, message = _generate(config, loaded, http_port, grace)
            case Step.FINISH:
                code, message = _finish(loaded)
            case _:
                assert_never(step)
    except JobError as error:
        log.error("%s: %s", error.reason, error.message)
        code, message = error.exit_code, TerminationMessage(refusal=error.refusal())
    termination.write(message)
    return code


def _plan(loaded: LoadedConfig) -> tuple[ExitCode, TerminationMessage]:
    from draftmill_jobs.plan.planning import plan

    return ExitCode.DONE, TerminationMessage(plan=plan(loaded.config))


def _generate(
    path: Path, loaded: LoadedConfig, http_port: int | None, grace: float
) -> tuple[ExitCode, TerminationMessage]:
    import uvloop

    from draftmill_jobs.generate.worker import generate
    from draftmill_jobs.shared.http import default_port

    port = default_port() if http_port is None else http_port
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, progress = runner.run(generate(path, loaded, http_port=port, grace=grace))
    return code, TerminationMessage(worker=WorkerResult(progress=progress))


def _finish(loaded: LoadedConfig) -> tuple[ExitCode, TerminationMessage]:
    from draftmill_jobs.finish.finishing import finish

    return ExitCode.DONE, TerminationMessage(finish=finish(loaded.config))


def main(arguments: list[str] | None = None) -> int:
    """The program. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="draftmill_jobs", description="Runs one step of a run.")
    steps = parser.add_subparsers(dest="step", required=True)
    for step, words in (
        (Step.PLAN, "look at model, prompts and storage before any server is started"),
        (Step.GENERATE, "ask every row that has no answer yet"),
        (Step.FINISH, "check what is on disk, and write summary.json and manifest.json"),
    ):
        command = steps.add_parser(step.value, help=words, description=words)
        command.add_argument(
            "--config", type=Path, required=True, help="the job's config file (YAML or JSON)"
        )
        command.add_argument("--http-port", type=int, help="serve progress here; 0 chooses a free port")
    generate = steps.choices[Step.GENERATE.value]
    generate.add_argument(
        "--grace-period",
        type=float,
        default=GRACE_SECONDS,
        help="seconds for answers in flight after SIGTERM",
    )
    chosen = parser.parse_args(arguments)
    set_up_logging()
    grace = getattr(chosen, "grace_period", GRACE_SECONDS)
    return run_step(Step(chosen.step), chosen.config, http_port=chosen.http_port, grace=grace)


def set_up_logging() -> None:
    """Logs to standard error: time, level, words."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        stream=sys.stderr,
    )
