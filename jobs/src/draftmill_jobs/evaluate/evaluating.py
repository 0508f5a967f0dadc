"""`draftmill evaluate`: held-out prompts, once on a plain server and once on one with the drafter.

Each server's answers are written down, so that the two need not run at the same time: the plain one may be
asked first, and is compared with the other one when that has answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from draftmill_api.drafter import AnsweredConcurrency, DrafterEvaluation, ServerAnswers
from draftmill_api.trainjob import JobEvaluation, Served, TrainJobConfig
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.evaluate.comparing import compared
from draftmill_jobs.evaluate.prompts import Prompt, held_out_prompts
from draftmill_jobs.evaluate.replaying import Replayed, replay
from draftmill_jobs.shared.artefacts import write_json
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.store.reader import Check, Store
from draftmill_jobs.train.folders import DRAFTER

log = logging.getLogger(__name__)

EVALUATION_FILE: Final = "evaluation.json"


async def evaluate(
    config: TrainJobConfig, served: Served | None = None, tell: Callable[[str], None] = lambda _: None
) -> DrafterEvaluation | None:
    """Asks one of the two servers, or one after the other; compares once both have answered.

    Args:
        config: What to ask, and where the answers go.
        served: The server; both when None.
        tell: Is told in a few words how far it is, with each tenth of the prompts.

    Returns:
        What is in `evaluation.json` then; None after the plain server alone.

    Raises:
        JobRefusedError: The config names no servers, nothing was held out, the server does not draft, or the
            plain server was asked something else; or a server will never answer one of the prompts.
        JobFailedError: A server does not answer, or shows no sign of life.
    """
    wanted = config.evaluation
    if wanted is None:
        raise JobRefusedError(
            "ConfigurationInvalid", "the config has no evaluation: name a plain server and one that drafts"
        )
    with Store.open(Path(config.store.path), check=Check.HEADERS) as store:
        prompts = held_out_prompts(store, percent=config.held_out_percent, most=wanted.max_rows)
    output = Path(config.output.path)
    for server in Served if served is None else (served,):
        _write(answers_file(output, server), await _ask(config, wanted, server, prompts, tell))
    if served is Served.PLAIN:
        return None
    plain, drafting = (_read(answers_file(output, server)) for server in Served)
    if _question(plain) != _question(drafting):
        raise JobRefusedError(
            "EvaluationDiffers",
            f"{answers_file(output, Served.PLAIN)} has answers to other prompts, of another length or at "
            "other concurrencies than those of the server with the drafter: ask the plain server again",
        )
    found = DrafterEvaluation(
        run=config.run,
        drafter_sha256=weights_hash(output),
        max_tokens=wanted.max_tokens,
        measured=compared(plain, drafting),
    )
    for each in found.measured:
        log.info(
            "%d at a time: acceptance length %.2f over %d cycles; %.1f tok/s plain, %.1f with the drafter "
            "(x %.2f); %d of %d answers are identical",
            each.concurrency,
            each.acceptance_length,
            each.cycles,
            each.plain_tokens_per_second,
            each.drafting_tokens_per_second,
            each.ratio,
            each.identical,
            each.prompts,
        )
    _write(output / EVALUATION_FILE, found)
    return found


def answers_file(output: Path, served: Served) -> Path:
    """Where a server's answers are."""
    return output / f"answers-{served.value}.json"


def weights_hash(output: Path) -> str | None:
    """Of the drafter's weights, which all of its folders share; None where the output has no drafter."""
    weights = sorted((output / DRAFTER).rglob("*.safetensors"))
    return sha256_of(weights[0]) if weights else None


async def _ask(
    config: TrainJobConfig,
    wanted: JobEvaluation,
    served: Served,
    prompts: Sequence[Prompt],
    tell: Callable[[str], None],
) -> ServerAnswers:
    endpoint, answered = wanted.of(served), list[AnsweredConcurrency]()
    for concurrency in wanted.concurrency:
        answers_came: Callable[[int], None] = partial(_tell, tell, len(prompts), concurrency)
        answers_came(0)
        async with open_session() as session:
            # The first answers of a server are slower than all others.
            for asked, came in ((prompts[:1], _nothing), (prompts, answers_came)):
                replayed = await replay(
                    session,
                    endpoint,
                    asked,
                    model=config.target.name,
                    max_tokens=wanted.max_tokens,
                    concurrency=concurrency,
                    answered=came,
                )
        if served is Served.DRAFTING and replayed.drafted is None:
            raise JobRefusedError(
                "NotDrafting",
                f"{endpoint.name} at {endpoint.url} counts no draft cycles: it was started without a "
                "drafter, or without its metrics",
            )
        log.info("%s server, %d at a time: %.1f tok/s", served.value, concurrency, replayed.tokens_per_second)
        answered.append(_written(concurrency, replayed))
    keys = [prompt.key for prompt in prompts]
    return ServerAnswers(run=config.run, max_tokens=wanted.max_tokens, prompts=keys, answered=answered)


def _tell(tell: Callable[[str], None], prompts: int, concurrency: int, done: int) -> None:
    tell(f"{done * 10 // prompts * 10} % of {prompts} prompts, {concurrency} at a time")


def _nothing(_: int) -> None:
    """What warms the server up counts for nothing."""


def _question(answers: ServerAnswers) -> tuple[list[str], int, list[int]]:
    """What a server was asked: only answers to the same are compared."""
    return answers.prompts, answers.max_tokens, [each.concurrency for each in answers.answered]


def _written(concurrency: int, replayed: Replayed) -> AnsweredConcurrency:
    drafted = replayed.drafted
    return AnsweredConcurrency(
        concurrency=concurrency,
        seconds=replayed.seconds,
        outputs=[list(output) for output in replayed.outputs],
        cycles=drafted.cycles if drafted is not None else None,
        accepted=drafted.accepted if drafted is not None else 0,
        by_position=list(drafted.by_position) if drafted is not None else [],
    )


def _write(path: Path, content: ServerAnswers | DrafterEvaluation) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def _read(path: Path) -> ServerAnswers:
    try:
        return ServerAnswers.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise JobRefusedError(
            "AnswersMissing", f"{path} cannot be read ({error}): ask that server first"
        ) from error
