"""`python -m draftmill_jobs plan|generate|finish --config job.yaml`: the steps as a program."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, assert_never

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.progress import Progress, TerminationMessage, WorkerResult, WorkerState
from draftmill_api.v1alpha1.status import RunProgress
from draftmill_jobs.errors import JobError
from draftmill_jobs.generate.guard import WhenPaused
from draftmill_jobs.shared import termination
from draftmill_jobs.shared.config import LoadedConfig, load

log = logging.getLogger(__name__)

GRACE_SECONDS = 25.0

T = TypeVar("T")


class Step(StrEnum):
    """The steps of a run."""

    PLAN = "plan"
    GENERATE = "generate"
    FINISH = "finish"


def run_step(
    step: Step,
    config: Path,
    *,
    http_port: int | None = None,
    grace: float = GRACE_SECONDS,
    when_paused: WhenPaused = WhenPaused.EXIT,
) -> ExitCode:
    """Runs one step, leaves its last words for the operator, and says how it ended.

    Args:
        step: Which one.
        config: The job's config file.
        http_port: Where progress is served; 0 chooses a port, None serves in pods only.
        grace: Seconds that answers in flight may take to finish after SIGTERM.
        when_paused: What the generator does when the error policy has tripped.
    """
    try:
        loaded = load(config)
        match step:
            case Step.PLAN:
                code, message = _plan(loaded, http_port)
            case Step.GENERATE:
                code, message = _generate(config, loaded, http_port, grace=grace, when_paused=when_paused)
            case Step.FINISH:
                code, message = _finish(loaded, http_port)
            case _:
                assert_never(step)
    except JobError as error:
        log.error("%s: %s", error.reason, error.message)  # noqa: TRY400 - said in a sentence, no trace
        code, message = error.exit_code, TerminationMessage(refusal=error.refusal())
    termination.write(message)
    return code


def _plan(loaded: LoadedConfig, http_port: int | None) -> tuple[ExitCode, TerminationMessage]:
    from draftmill_jobs.plan.planning import plan  # noqa: PLC0415 - heavy, and not always needed

    return ExitCode.DONE, TerminationMessage(plan=_served(plan, loaded, http_port))


def _generate(
    path: Path, loaded: LoadedConfig, http_port: int | None, *, grace: float, when_paused: WhenPaused
) -> tuple[ExitCode, TerminationMessage]:
    import uvloop  # noqa: PLC0415 - heavy, and not always needed

    from draftmill_jobs.generate.worker import generate  # noqa: PLC0415 - heavy, and not always needed
    from draftmill_jobs.shared.http import default_port  # noqa: PLC0415 - heavy, and not always needed

    port = default_port() if http_port is None else http_port
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, progress = runner.run(
            generate(path, loaded, http_port=port, grace=grace, when_paused=when_paused)
        )
    return code, TerminationMessage(worker=WorkerResult(progress=progress))


def _finish(loaded: LoadedConfig, http_port: int | None) -> tuple[ExitCode, TerminationMessage]:
    from draftmill_jobs.finish.finishing import finish  # noqa: PLC0415 - heavy, and not always needed

    return ExitCode.DONE, TerminationMessage(finish=_served(finish, loaded, http_port))


def _served(look: Callable[[SynthJobConfig], T], loaded: LoadedConfig, http_port: int | None) -> T:
    """Runs a step that only looks, with `/healthz` and the rest beside it."""
    from draftmill_jobs.shared.http import default_port, serve  # noqa: PLC0415 - heavy, and not always needed

    now = Progress(
        run_uid=loaded.config.run.uid,
        state=WorkerState.RUNNING,
        config_hash=loaded.hash,
        progress=RunProgress(),
    )

    async def run() -> T:
        async with serve(default_port() if http_port is None else http_port, lambda: now):
            return await asyncio.to_thread(look, loaded.config)

    return asyncio.run(run())


def main(arguments: list[str] | None = None, *, program: str = "draftmill_jobs") -> int:
    """The program, under the name by which it was called. Returns its exit code."""
    parser = argparse.ArgumentParser(prog=program, description="Runs one step of a run.")
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
    generate.add_argument(
        "--when-paused",
        type=WhenPaused,
        choices=list(WhenPaused),
        default=WhenPaused.EXIT,
        help="when generation.errorPolicy has tripped: end with exit code 3, or stay until the config raises "
        "it or has another resumeToken (default: exit)",
    )
    chosen = parser.parse_args(arguments)
    set_up_logging()
    return run_step(
        Step(chosen.step),
        chosen.config,
        http_port=chosen.http_port,
        grace=getattr(chosen, "grace_period", GRACE_SECONDS),
        when_paused=getattr(chosen, "when_paused", WhenPaused.EXIT),
    )


def set_up_logging() -> None:
    """Logs to standard error: time, level, words."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        stream=sys.stderr,
    )
