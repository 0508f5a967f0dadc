"""`python -m draftmill_jobs STEP --config job.yaml`: the steps as a program."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from draftmill_api.exitcode import ExitCode
from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.progress import Progress, TerminationMessage, WorkerResult, WorkerState
from draftmill_api.trainjob import Served, TrainJobConfig
from draftmill_api.v1alpha1.extractrun import Backend
from draftmill_jobs.errors import JobError, JobRefusedError
from draftmill_jobs.generate.guard import WhenPaused
from draftmill_jobs.shared import termination
from draftmill_jobs.shared.config import Config, ConfigFile, LoadedConfig, read
from draftmill_jobs.shared.redaction import RedactingFormatter
from draftmill_jobs.shared.signals import end_on_sigterm
from draftmill_jobs.shared.torchless import without_torch

log = logging.getLogger(__name__)

GRACE_SECONDS = 25.0
_LAST_PORT: Final = 65535
_SELDOM: Final = (10_000, 20, 20)
"""When the generator looks for cycles: by default it would spend a quarter of its time on what is loaded."""

T = TypeVar("T")
Ended = tuple[ExitCode, TerminationMessage]


class Step(StrEnum):
    """The steps of a run."""

    PLAN = "plan"
    GENERATE = "generate"
    EXTRACT = "extract"
    TRAIN = "train"
    EVALUATE = "evaluate"
    FINISH = "finish"


_INSTALL: Final = "install-connector"
_EXIT_CODES: Final = (
    "Exit code: 0 when it is done; 1 when it failed, and another try may not; 2 when it is refused until "
    "something is changed; 3 when generate is paused by its error policy; 75 when SIGTERM stopped it with "
    "work left, on which the next start goes on."
)
_OF_SYNTH_RUN: Final = (Step.PLAN, Step.GENERATE, Step.FINISH)
_OF_EXTRACT_RUN: Final = (Step.PLAN, Step.EXTRACT, Step.FINISH)
_OF_DRAFTER_TRAIN: Final = (Step.PLAN, Step.TRAIN, Step.FINISH, Step.EVALUATE)


@dataclass(frozen=True, slots=True)
class Options:
    """How a step is run.

    Attributes:
        http_port: Where progress is served; 0 chooses a port, None serves in pods only.
        grace: Seconds that work on its way may take to finish after SIGTERM.
        when_paused: What the generator does when the error policy has tripped.
        server: The one of an evaluation's two servers that is asked; both when None.
    """

    http_port: int | None = None
    grace: float = GRACE_SECONDS
    when_paused: WhenPaused = WhenPaused.EXIT
    server: Served | None = None

    @property
    def port(self) -> int | None:
        """The port to serve on."""
        from draftmill_jobs.shared.http import default_port  # noqa: PLC0415 - heavy, and not always needed

        return default_port() if self.http_port is None else self.http_port


def run_step(step: Step, config: Path, options: Options) -> ExitCode:
    """Runs one step, leaves its last words for the operator, and says how it ended."""
    try:
        file = read(config)
        if file.kind is SynthJobConfig:
            code, message = _synth_run(step, file, options)
        elif file.kind is ExtractJobConfig:
            code, message = _extract_run(step, file, options)
        else:
            code, message = _drafter_train(step, file, options)
    except JobError as error:
        log.error("%s: %s", error.reason, error.message)  # noqa: TRY400 - said in a sentence, no trace
        code, message = error.exit_code, TerminationMessage(refusal=error.refusal())
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("draftmill"):
            raise
        missing = JobRefusedError(
            "LibraryMissing",
            f"{step} needs {error.name}, which is not installed: choose an image that has it, or "
            "pip install 'draftmill[train]'",
        )
        log.error("%s: %s", missing.reason, missing.message)  # noqa: TRY400 - said in a sentence, no trace
        code, message = missing.exit_code, TerminationMessage(refusal=missing.refusal())
    termination.write(message)
    return code


@without_torch()
def _synth_run(step: Step, file: ConfigFile, options: Options) -> Ended:
    loaded = file.parse(SynthJobConfig)
    match step:
        case Step.PLAN:
            from draftmill_jobs.plan.planning import plan  # noqa: PLC0415 - heavy, and not always needed

            return ExitCode.DONE, TerminationMessage(plan=_served(plan, loaded, options))
        case Step.GENERATE:
            return _generate(file.path, loaded, options)
        case Step.FINISH:
            from draftmill_jobs.finish.finishing import finish  # noqa: PLC0415 - heavy, and not always needed

            return ExitCode.DONE, TerminationMessage(finish=_served(finish, loaded, options))
        case _:
            raise _not_a_step(step, "a SynthRun", _OF_SYNTH_RUN, file.path)


def _extract_run(step: Step, file: ConfigFile, options: Options) -> Ended:
    loaded = file.parse(ExtractJobConfig)
    with nullcontext() if loaded.config.backend is Backend.TRANSFORMERS else without_torch():
        return _extract_step(step, file.path, loaded, options)


def _extract_step(step: Step, path: Path, loaded: LoadedConfig[ExtractJobConfig], options: Options) -> Ended:
    match step:
        case Step.PLAN:
            from draftmill_jobs.extract.planning import plan  # noqa: PLC0415 - heavy, and not always needed

            return ExitCode.DONE, TerminationMessage(extract_plan=_served(plan, loaded, options))
        case Step.EXTRACT:
            return _extract(path, loaded, options)
        case Step.FINISH:
            from draftmill_jobs.extract.finishing import finish  # noqa: PLC0415 - heavy, and not always needed

            return ExitCode.DONE, TerminationMessage(extract_finish=_served(finish, loaded, options))
        case _:
            raise _not_a_step(step, "an ExtractRun", _OF_EXTRACT_RUN, path)


def _drafter_train(step: Step, file: ConfigFile, options: Options) -> Ended:
    loaded = file.parse(TrainJobConfig)
    match step:
        case Step.PLAN:
            from draftmill_jobs.train.planning import plan  # noqa: PLC0415 - heavy, and not always needed

            return ExitCode.DONE, TerminationMessage(train_plan=_served(plan, loaded, options))
        case Step.TRAIN:
            return _train(file.path, loaded, options)
        case Step.FINISH:
            from draftmill_jobs.train.finishing import finish  # noqa: PLC0415 - heavy, and not always needed

            return ExitCode.DONE, TerminationMessage(train_finish=_served(finish, loaded, options))
        case Step.EVALUATE:
            from draftmill_jobs.evaluate.evaluating import evaluate  # noqa: PLC0415 - not always needed

            _telling(
                lambda config, tell: asyncio.run(evaluate(config, options.server, tell)), loaded, options
            )
            return ExitCode.DONE, TerminationMessage()
        case _:
            raise _not_a_step(step, "a DrafterTrain", _OF_DRAFTER_TRAIN, file.path)


def _not_a_step(step: Step, run: str, steps: tuple[Step, ...], path: Path) -> JobRefusedError:
    *first, last = steps
    return JobRefusedError(
        "ConfigurationInvalid",
        f"{path} is of {run}, which has the steps {', '.join(first)} and {last}, and no {step}",
    )


def _generate(path: Path, loaded: LoadedConfig[SynthJobConfig], options: Options) -> Ended:
    import uvloop  # noqa: PLC0415 - heavy, and not always needed

    from draftmill_jobs.generate.worker import generate  # noqa: PLC0415 - heavy, and not always needed

    gc.set_threshold(*_SELDOM)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, progress = runner.run(
            generate(
                path, loaded, http_port=options.port, grace=options.grace, when_paused=options.when_paused
            )
        )
    return code, TerminationMessage(worker=WorkerResult(progress=progress))


def _extract(path: Path, loaded: LoadedConfig[ExtractJobConfig], options: Options) -> Ended:
    import uvloop  # noqa: PLC0415 - heavy, and not always needed

    from draftmill_jobs.extract.worker import extract  # noqa: PLC0415 - heavy, and not always needed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code, progress = runner.run(extract(path, loaded, http_port=options.port, grace=options.grace))
    return code, TerminationMessage(worker=WorkerResult(extraction=progress))


def _train(path: Path, loaded: LoadedConfig[TrainJobConfig], options: Options) -> Ended:
    """This process, or those that it starts, one for each GPU of this machine."""
    from draftmill_jobs.train.places import is_rank, join_alone, this_machine  # noqa: PLC0415 - of this step only

    if not is_rank(os.environ):
        config = loaded.config
        machine = this_machine(os.environ, nodes=config.nodes, gpus_per_node=config.gpus_per_node)
        if machine.processes > 1:
            from draftmill_jobs.train.launching import launch, this_program  # noqa: PLC0415 - seldom needed

            return launch(machine, this_program(path, options.http_port))
        if machine.ranks > 1:
            join_alone(machine)
    from draftmill_jobs.train.worker import train_as_rank  # noqa: PLC0415 - heavy, and not always needed

    code, progress = asyncio.run(train_as_rank(loaded, http_port=options.port))
    return code, TerminationMessage(worker=WorkerResult(training=progress))


def _served(look: Callable[[Config], T], loaded: LoadedConfig[Config], options: Options) -> T:
    """Runs a step that has no progress to tell of, with `/healthz` and the rest beside it."""
    return _telling(lambda config, _: look(config), loaded, options)


def _telling(
    look: Callable[[Config, Callable[[str], None]], T], loaded: LoadedConfig[Config], options: Options
) -> T:
    """The same for a step that says in words how far it is."""
    from draftmill_jobs.shared.http import serve  # noqa: PLC0415 - heavy, and not always needed

    now = Progress(run_uid=loaded.config.run.uid, state=WorkerState.RUNNING, config_hash=loaded.hash)

    def tell(words: str) -> None:
        nonlocal now
        now = now.model_copy(update={"message": words})

    async def run() -> T:
        async with serve(options.port, lambda: now):
            return await asyncio.to_thread(look, loaded.config, tell)

    return asyncio.run(run())


def main(arguments: list[str] | None = None, *, program: str = "draftmill_jobs") -> int:
    """The program, under the name by which it was called. Returns its exit code."""
    end_on_sigterm()
    chosen = _parser(program).parse_args(arguments)
    set_up_logging()
    if chosen.step == _INSTALL:
        return _install_connector(chosen.to)
    options = Options(
        http_port=chosen.http_port,
        grace=getattr(chosen, "grace_period", GRACE_SECONDS),
        when_paused=getattr(chosen, "when_paused", WhenPaused.EXIT),
        server=getattr(chosen, "server", None),
    )
    return run_step(Step(chosen.step), chosen.config, options)


def _install_connector(folder: Path) -> ExitCode:
    from draftmill_jobs.extract.connector.installing import install_connector  # noqa: PLC0415 - seldom needed

    try:
        install_connector(folder)
    except JobError as error:
        log.error("%s: %s", error.reason, error.message)  # noqa: TRY400 - said in a sentence, no trace
        termination.write(TerminationMessage(refusal=error.refusal()))
        return error.exit_code
    return ExitCode.DONE


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="Runs one step of a run.")
    steps = parser.add_subparsers(dest="step", required=True)
    for step, words in (
        (Step.PLAN, "look at model, input and storage before any server is started"),
        (Step.GENERATE, "ask every row that has no answer yet"),
        (Step.EXTRACT, "store the hidden states of every row that the store does not have yet"),
        (Step.TRAIN, "train a drafter on the hidden states, from the newest checkpoint on"),
        (Step.EVALUATE, "replay held-out prompts with and without the drafter, into evaluation.json"),
        (Step.FINISH, "check what is on disk, and write summary.json and manifest.json"),
    ):
        command = steps.add_parser(
            step.value, help=words, description=f"{words[0].upper()}{words[1:]}.", epilog=_EXIT_CODES
        )
        command.add_argument(
            "--config",
            type=Path,
            required=True,
            help="the job's config file (YAML or JSON): docs/reference/job-config.md names its fields",
        )
        command.add_argument("--http-port", type=_port, help="serve progress here; 0 chooses a free port")
        if step in (Step.GENERATE, Step.EXTRACT):
            command.add_argument(
                "--grace-period",
                type=float,
                default=GRACE_SECONDS,
                help="seconds that work on its way may take after SIGTERM",
            )
    words = "put the hidden-state connector for vLLM on CPU into a folder of the server's PYTHONPATH"
    install = steps.add_parser(_INSTALL, help=words, description=words)
    install.add_argument("--to", type=Path, required=True, metavar="DIR", help="the folder")
    steps.choices[Step.EVALUATE.value].add_argument(
        "--server",
        type=Served,
        choices=list(Served),
        help="ask this one alone; the two are compared when both have answered (default: ask both)",
    )
    steps.choices[Step.GENERATE.value].add_argument(
        "--when-paused",
        type=WhenPaused,
        choices=list(WhenPaused),
        default=WhenPaused.EXIT,
        help="when generation.errorPolicy has tripped: end with exit code 3, or stay until the config raises "
        "it or has another resumeToken (default: exit)",
    )
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port: a number from 0 to {_LAST_PORT}")
    return int(text)


def set_up_logging() -> None:
    """Logs to standard error: time, level, words."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
