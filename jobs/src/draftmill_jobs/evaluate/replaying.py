"""Asking a server a set of prompts, greedily, and what it counted meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_api.v1alpha1.synthrun import Api
from draftmill_jobs.engines.base import Ask
from draftmill_jobs.engines.client import post, read_metrics_page
from draftmill_jobs.engines.failures import RequestFailedError, Verdict
from draftmill_jobs.engines.routes import route_for
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.evaluate.drafting import Drafted, of_sglang, of_vllm
from draftmill_jobs.evaluate.prompts import Prompt

_CONNECT_TIMEOUT: Final = 10.0
_GREEDY: Final = {"temperature": 0.0, "top_p": 1.0}


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a server made of the prompts.

    Attributes:
        outputs: Token ids of each answer, in the order of the prompts.
        seconds: From the first request to the last answer.
        drafted: What it counted of its drafting; None when it does not draft.
    """

    outputs: tuple[tuple[int, ...], ...]
    seconds: float
    drafted: Drafted | None

    @property
    def tokens_per_second(self) -> float:
        """Over all requests at once."""
        return sum(map(len, self.outputs)) / self.seconds


async def replay(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    prompts: Sequence[Prompt],
    *,
    model: str,
    max_tokens: int,
    concurrency: int,
) -> Replayed:
    """Asks every prompt at temperature 0, so many at a time.

    Raises:
        JobFailedError: The server does not answer one of them.
        JobRefusedError: It says that it never will, as to a prompt that is too long for it.
    """
    asking = _Asking(session, endpoint, model, max_tokens)
    try:
        before = await _counters(session, endpoint)
        began = time.monotonic()
        answers = await asking.all(prompts, concurrency)
        seconds = time.monotonic() - began
        after = await _counters(session, endpoint)
    except RequestFailedError as error:
        may_pass = error.verdict is Verdict.RETRY
        raise (JobFailedError if may_pass else JobRefusedError)(
            "EvaluationFailed", f"{endpoint.name} at {endpoint.url}: {error}"
        ) from error
    if endpoint.engine is Engine.SGLANG:
        drafted = of_sglang(answer.meta for answer in answers)
    else:
        drafted = after - before if after is not None and before is not None else None
    return Replayed(tuple(answer.ids for answer in answers), seconds, drafted)


@dataclass(frozen=True, slots=True)
class _Answer:
    ids: tuple[int, ...]
    meta: dict[str, Any]


@dataclass(frozen=True)
class _Asking:
    session: aiohttp.ClientSession
    endpoint: Endpoint
    model: str
    max_tokens: int

    async def all(self, prompts: Sequence[Prompt], concurrency: int) -> list[_Answer]:
        """Their answers, in their order."""
        found: list[_Answer | None] = [None] * len(prompts)
        places = iter(range(len(prompts)))

        async def ask_on() -> None:
            for place in places:
                found[place] = await self._ask(prompts[place])

        tasks = [asyncio.create_task(ask_on()) for _ in range(min(concurrency, len(prompts)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [answer for answer in found if answer is not None]

    async def _ask(self, prompt: Prompt) -> _Answer:
        route = route_for(self.endpoint.engine, Api.GENERATE)
        ask = Ask(
            request_id=f"evaluate-{next(_NUMBERS)}",
            model=self.model,
            messages=[],
            tools=None,
            template_arguments={},
            prompt_ids=list(prompt.token_ids),
            sampling={**_GREEDY, "max_completion_tokens": self.max_tokens},
        )
        payload = await post(
            self.session,
            self.endpoint.url,
            route.path,
            route.body(ask),
            connect_timeout=_CONNECT_TIMEOUT,
            byte_came=_nothing,
        )
        meta = payload.get("meta_info")
        answer = route.answer(ask, payload)
        return _Answer(tuple(answer.output_ids), meta if isinstance(meta, dict) else {})


_NUMBERS: Final = itertools.count()


async def _counters(session: aiohttp.ClientSession, endpoint: Endpoint) -> Drafted | None:
    if endpoint.engine is Engine.SGLANG:
        return None  # its answers say it
    page = await read_metrics_page(session, endpoint.url)
    return of_vllm(page) if page is not None else None


def _nothing() -> None:
    """Nobody waits for single bytes."""
