"""One row from its first try to its record or dead letter."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, TypeVar

from draftmill_api.record import DeadLetter, RecordModel
from draftmill_jobs.engines.base import Answer, Ask
from draftmill_jobs.engines.failures import LOSSES, RequestFailedError, Verdict
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate.affinity import prefix_of
from draftmill_jobs.generate.board import Board
from draftmill_jobs.generate.conversations import Outcome, answered, outcome_of
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool
from draftmill_jobs.generate.guard import Guard
from draftmill_jobs.generate.limiter import Lease, Limiter, Size
from draftmill_jobs.generate.outlook import Course
from draftmill_jobs.generate.quota import Quota
from draftmill_jobs.generate.records import (
    Circumstances,
    encode,
    failed_row,
    record_line,
    takes_long,
)
from draftmill_jobs.generate.resume import OpenDataset
from draftmill_jobs.generate.tokenize import TokenizerThread
from draftmill_jobs.generate.tries import Next, Tries
from draftmill_jobs.generate.writer import Writer
from draftmill_jobs.model.answer_text import AnswerReader
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.prompts.rows import Question

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class Asker:
    """Asks rows; a row that fails in passing is asked again, elsewhere if need be.

    Attributes:
        guard: Is told how each asked row went, at once.
        retries: Further tries of a row, in force now.
        short_prompt: Most tokens of a short prompt, in force now; None while sizes make no difference.
        settled: Called after each record or dead letter that will survive a crash.
    """

    pool: EndpointPool
    limiter: Limiter
    quota: Quota
    writer: Writer
    board: Board
    model: TargetModel
    tokenizer: TokenizerThread
    guard: Guard
    retries: Callable[[], int]
    short_prompt: Callable[[], int | None]
    rng: random.Random
    settled: Callable[[], None]

    def __post_init__(self) -> None:
        self._stopping = False
        self._some_back = asyncio.Event()
        self._waiting: set[asyncio.Task[None] | None] = set()
        facts = self.model.facts
        self._record_model = RecordModel(name=self.model.name, fingerprint=facts.fingerprint).model_dump()
        self._process, self._requests = uuid.uuid4().hex[:8], count()
        self._reader = AnswerReader(self.model.think, self.model.tokenizer, self.model.stop_ids)

    @property
    def sizes_matter(self) -> bool:
        """Whether short prompts have a cap of their own."""
        return self.short_prompt() is not None

    async def size_of(self, dataset: OpenDataset, question: Question) -> Size:
        """How long a prompt is, by the model's own template; one that the template refuses is not short."""
        most = self.short_prompt()
        if most is None:
            return Size.LONG
        try:
            ids = await self._prompt_ids(dataset, question)
        except RequestFailedError:
            return Size.LONG  # what is wrong with it is said when it is asked
        return Size.SHORT if len(ids) <= most else Size.LONG

    async def ask(self, dataset: OpenDataset, question: Question, lease: Lease, course: Course) -> Outcome:
        """Brings a row to its record or dead letter, and says on its course what becomes of it.

        Returns:
            What those who go on from it need of that.

        Raises:
            JobRefusedError: The server refuses us, whatever the row.
            asyncio.CancelledError: The worker is stopping; the row stays as it was.
        """
        tries = Tries()
        while True:
            endpoint, size = lease.server, lease.size
            with lease:
                course.sent = started = self.pool.clock()
                failure = None
                try:
                    answer = await self._try(endpoint, dataset, question)
                except RequestFailedError as error:
                    failure = error
                    course.failed(self.pool.clock())
                    self.board.request_failures[error.kind.value] += 1
                self.pool.ended(endpoint, lease.generation, failure)
            if failure is None:
                tokens = len(answer.prompt_ids) + len(answer.output_ids)
                self.quota.settle(lease.charged, tokens, self.pool.clock())
                came = self.pool.clock()
                latency = came - started
                course.answer(len(answer.output_ids), came)
                return await self._keep(dataset, question, endpoint, answer, latency=latency, course=course)
            match await self._judge(endpoint, failure, tries):
                case Next.GIVE_UP:
                    return await self._bury(dataset, question, failure, tries=tries.spent, course=course)
                case Next.LATER:
                    await self._wait(asyncio.sleep(tries.pause(failure, self.rng)))
                case Next.NOW:
                    pass
            self.board.retried += 1
            lease = await self._wait(self.lease(dataset, question, size, avoid=endpoint, first=True))

    async def lease(
        self,
        dataset: OpenDataset,
        question: Question,
        size: Size,
        *,
        avoid: Endpoint | None = None,
        first: bool = False,
    ) -> Lease:
        """Waits for a place at a server; at another one than `avoid` if there is one."""
        prefix = None
        if len(self.pool.endpoints) > 1:
            prefix = prefix_of(question.prompt, dataset.settings.chat_template_kwargs)
        return await self.limiter.lease(size, partial(self.pool.choose, avoid, prefix), first=first)

    async def _judge(self, endpoint: Endpoint, failure: RequestFailedError, tries: Tries) -> Next:
        is_lost = failure.verdict is Verdict.RETRY and (
            (endpoint.breaker.is_open and failure.kind in LOSSES) or await self.pool.is_lost(endpoint)
        )
        if endpoint.removed:
            return Next.NOW  # perhaps for that very failure: its last words are nothing against the row
        if failure.verdict is Verdict.STOP:
            raise JobRefusedError(
                "EndpointRefused",
                f"endpoint {endpoint.spec.name} ({endpoint.spec.url}{endpoint.route.path}) refuses every "
                f"request: {failure.message}; check its address, the model's name and access rights",
            )
        if not is_lost:
            self.pool.failed(endpoint, failure)
        return tries.after(failure, is_lost=is_lost, retries=self.retries())

    async def _try(self, endpoint: Endpoint, dataset: OpenDataset, question: Question) -> Answer:
        prompt = question.prompt
        prompt_ids = await self._prompt_ids(dataset, question) if endpoint.route.sends_ids else []
        ask = Ask(
            request_id=f"{question.id}-{self._process}-{next(self._requests)}",
            model=self.model.name,
            messages=prompt.messages,
            tools=prompt.tools,
            template_arguments=dataset.settings.chat_template_kwargs,
            prompt_ids=prompt_ids,
            sampling=_sampling(dataset, question),
        )
        return await self.pool.ask(endpoint, ask)

    async def _prompt_ids(self, dataset: OpenDataset, question: Question) -> list[int]:
        prompt = question.prompt
        arguments = dataset.settings.chat_template_kwargs
        return await self.tokenizer.prompt_ids(prompt.messages, prompt.tools, arguments)

    async def _keep(
        self,
        dataset: OpenDataset,
        question: Question,
        endpoint: Endpoint,
        answer: Answer,
        *,
        latency: float,
        course: Course,
    ) -> Outcome:
        self.guard.answered()
        given = Circumstances(
            dataset=dataset.settings.name,
            template_arguments=dataset.settings.chat_template_kwargs,
            sampling=_sampling(dataset, question),
            model=self._record_model,
            server=endpoint.spec.name,
            attempt=self.board.attempt,
            created=now_text(),
            latency=latency,
        )
        build = partial(record_line, question, answer, self._reader, given)
        is_long = takes_long(answer, decodes_fast=self.model.tokenizer.decodes_fast)
        line = await self.tokenizer.run(build) if is_long else build()
        counted = line.status, line.finish_reason, line.completion_tokens

        def written() -> None:
            dataset.tally.add_record(*counted)
            course.settled(self.pool.clock())
            self.settled()

        await self.writer.put(dataset.records, line.data, written)
        return answered(question.id, question.prompt.messages, line.status, line.reasoning, line.content)

    async def _bury(
        self,
        dataset: OpenDataset,
        question: Question,
        failure: RequestFailedError,
        *,
        tries: int,
        course: Course,
    ) -> Outcome:
        letter = failed_row(
            dataset.settings.name,
            question,
            failure,
            tries=tries,
            created=now_text(),
            expected=course.given_up(),
        )
        self.guard.failed(letter.reason, letter.id, letter.message)
        log.warning("row %s of %s: %s", letter.id, letter.dataset, letter.message)
        await self.bury(dataset, letter, course)
        return outcome_of(letter)

    async def bury(self, dataset: OpenDataset, letter: DeadLetter, course: Course | None = None) -> None:
        """Writes a dead letter; a row that was asked has a course, too."""

        def written() -> None:
            dataset.tally.errors += 1
            self.board.failures.add(letter.__dict__)
            if course is not None:
                course.settled(self.pool.clock())
            self.settled()

        await self.writer.put(dataset.dead_letters, encode(letter), written)

    def stop(self) -> None:
        """Ends rows between two tries, now and from now on; those in flight go on."""
        self._stopping = True
        for task in self._waiting:
            if task is not None:
                task.cancel()

    async def until_few_wait(self) -> None:
        """Waits while as many rows are between two tries as may be in flight: new ones would pile up."""
        while len(self._waiting) >= self.limiter.caps.total:
            self._some_back.clear()
            await self._some_back.wait()

    async def _wait(self, what: Coroutine[Any, Any, T]) -> T:
        if self._stopping:
            what.close()
            raise asyncio.CancelledError
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            return await what
        finally:
            self._waiting.discard(task)
            self._some_back.set()


def _sampling(dataset: OpenDataset, question: Question) -> dict[str, Any]:
    """What is sent; each sample of a prompt has a seed of its own."""
    facts = dataset.sampling
    return {**facts, "seed": facts["seed"] + question.sample} if "seed" in facts else facts


def now_text() -> str:
    """The time as records say it: RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
