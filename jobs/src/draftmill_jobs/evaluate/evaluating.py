"""`draftmill evaluate`: held-out prompts, once on a plain server and once on one with the drafter."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from draftmill_api.drafter import DrafterEvaluation, EvaluatedConcurrency
from draftmill_api.trainjob import JobEvaluation, TrainJobConfig
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.evaluate.drafting import Drafted
from draftmill_jobs.evaluate.prompts import Prompt, held_out_prompts
from draftmill_jobs.evaluate.replaying import Replayed, replay
from draftmill_jobs.shared.artefacts import write_json
from draftmill_jobs.store.reader import Check, Store

log = logging.getLogger(__name__)

EVALUATION_FILE: Final = "evaluation.json"


async def evaluate(config: TrainJobConfig) -> DrafterEvaluation:
    """Measures at each concurrency; writes `evaluation.json` beside the drafter.

    Raises:
        JobRefusedError: The config names no servers, nothing was held out, or the server does not draft.
        JobFailedError: A server does not answer.
    """
    wanted = config.evaluation
    if wanted is None:
        raise JobRefusedError(
            "ConfigurationInvalid", "the config has no evaluation: name a plain server and one that drafts"
        )
    with Store.open(Path(config.store.path), check=Check.HEADERS) as store:
        prompts = held_out_prompts(store, percent=config.held_out_percent, most=wanted.max_rows)
    measured = [
        await _measure(wanted, prompts, config.target.name, concurrency) for concurrency in wanted.concurrency
    ]
    found = DrafterEvaluation(run=config.run, max_tokens=wanted.max_tokens, measured=measured)
    _write(Path(config.output.path), found)
    return found


def _write(output: Path, found: DrafterEvaluation) -> None:
    output.mkdir(parents=True, exist_ok=True)
    write_json(output / EVALUATION_FILE, found)


async def _measure(
    wanted: JobEvaluation, prompts: Sequence[Prompt], model: str, concurrency: int
) -> EvaluatedConcurrency:
    replays = []
    for endpoint in (wanted.plain, wanted.drafting):
        async with open_session() as session:
            # The first answers of a server are slower than all others.
            for asked in (prompts[:1], prompts):
                replayed = await replay(
                    session,
                    endpoint,
                    asked,
                    model=model,
                    max_tokens=wanted.max_tokens,
                    concurrency=concurrency,
                )
        replays.append(replayed)
    plain, drafting = replays
    if drafting.drafted is None:
        raise JobRefusedError(
            "NotDrafting",
            f"{wanted.drafting.name} at {wanted.drafting.url} counts no draft cycles: it was started without "
            "a drafter, or without its metrics",
        )
    found = compared(plain, drafting, drafting.drafted, concurrency)
    log.info(
        "%d at a time: acceptance length %.2f over %d cycles; %.1f tok/s plain, %.1f with the drafter "
        "(x %.2f); %d of %d answers are identical",
        concurrency,
        found.acceptance_length,
        found.cycles,
        found.plain_tokens_per_second,
        found.drafting_tokens_per_second,
        found.ratio,
        found.identical,
        found.prompts,
    )
    return found


def compared(plain: Replayed, drafting: Replayed, drafted: Drafted, concurrency: int) -> EvaluatedConcurrency:
    """What the two have to say beside each other. Pure."""
    return EvaluatedConcurrency(
        concurrency=concurrency,
        prompts=len(plain.outputs),
        tokens=sum(map(len, drafting.outputs)),
        cycles=drafted.cycles,
        acceptance_length=drafted.length,
        by_position=list(drafted.shares),
        plain_tokens_per_second=plain.tokens_per_second,
        drafting_tokens_per_second=drafting.tokens_per_second,
        ratio=drafting.tokens_per_second / plain.tokens_per_second,
        identical=sum(a == b for a, b in zip(plain.outputs, drafting.outputs, strict=True)),
    )
