"""Asking a server a set of prompts, greedily, and what it counted meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from draftmill_api.v1alpha1.generation import Api
from draftmill_api.v1alpha1.shared import Endpoint as EndpointSpec
from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.base import Ask
from draftmill_jobs.engines.client import Session, post, read_metrics_page
from draftmill_jobs.engines.failures import RequestFailedError, Verdict
from draftmill_jobs.engines.routes import route_for
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.evaluate.drafting import Drafted, of_sglang, of_vllm
from draftmill_jobs.evaluate.prompts import Prompt
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool
from draftmill_jobs.generate.keeper import watch
from draftmill_jobs.generate.life import Life

STALL_TIMEOUT: Final = 600.0
"""Seconds without a sign of life after which a request is given up, as a generator's are."""
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
    session: Session,
    spec: EndpointSpec,
    prompts: Sequence[Prompt],
    *,
    model: str,
    max_tokens: int,
    concurrency: int,
    answered: Callable[[int], None] = lambda _: None,
    stall_timeout: float = STALL_TIMEOUT,
) -> Replayed:
    """Asks every prompt at temperature 0, so many at a time.

    Args:
        session: From `open_session`.
        spec: The server.
        prompts: What is asked.
        model: The name under which it is served.
        max_tokens: Most tokens of an answer.
        concurrency: Requests at a time.
        answered: Is told after each answer how many there are.
        stall_timeout: Seconds without a sign of life of the server that are too many.

    Raises:
        JobFailedError: The server does not answer one of them, or shows no sign of life.
        JobRefusedError: It says that it never will, as to a prompt that is too long for it.
    """
    pool = EndpointPool(session, time.monotonic, lambda: _CONNECT_TIMEOUT)
    endpoint = Endpoint(spec, route_for(spec.engine, Api.GENERATE), Life(last_sign=pool.clock()))
    asking = _Asking(pool, endpoint, model, max_tokens, answered)
    watching = asyncio.create_task(watch(pool, endpoint, lambda: stall_timeout))
    try:
        before = await _counters(session, spec)
        began = time.monotonic()
        answers = await asking.all(prompts, concurrency)
        seconds = time.monotonic() - began
        after = await _counters(session, spec)
    except RequestFailedError as error:
        may_pass = error.verdict is Verdict.RETRY
        raise (JobFailedError if may_pass else JobRefusedError)(
            "EvaluationFailed", f"{spec.name} at {spec.url}: {error}"
        ) from error
    finally:
        watching.cancel()
    if spec.engine is Engine.SGLANG:
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
    pool: EndpointPool
    endpoint: Endpoint
    model: str
    max_tokens: int
    answered: Callable[[int], None]

    async def all(self, prompts: Sequence[Prompt], concurrency: int) -> list[_Answer]:
        """Their answers, in their order."""
        found: list[_Answer | None] = [None] * len(prompts)
        places, count = iter(range(len(prompts))), itertools.count(1)

        async def ask_on() -> None:
            for place in places:
                found[place] = await self._ask(prompts[place])
                self.answered(next(count))

        tasks = [asyncio.create_task(ask_on()) for _ in range(min(concurrency, len(prompts)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [answer for answer in found if answer is not None]

    async def _ask(self, prompt: Prompt) -> _Answer:
        route = self.endpoint.route
        ask = Ask(
            request_id=f"evaluate-{next(_NUMBERS)}",
            model=self.model,
            messages=[],
            tools=None,
            template_arguments={},
            prompt_ids=list(prompt.token_ids),
            sampling={**_GREEDY, "max_completion_tokens": self.max_tokens},
        )
        async with self.pool.watched(self.endpoint) as byte_came:
            payload = await post(
                self.pool.session,
                self.endpoint.spec.url,
                route.path,
                route.body(ask),
                connect_timeout=_CONNECT_TIMEOUT,
                byte_came=byte_came,
            )
        meta = payload.get("meta_info")
        answer = route.answer(ask, payload)
        return _Answer(tuple(answer.output_ids), meta if isinstance(meta, dict) else {})


_NUMBERS: Final = itertools.count()


async def _counters(session: Session, spec: EndpointSpec) -> Drafted | None:
    if spec.engine is Engine.SGLANG:
        return None  # its answers say it
    page = await read_metrics_page(session, spec.url)
    return of_vllm(page) if page is not None else None
