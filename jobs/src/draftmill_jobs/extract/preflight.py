"""The proof, before the mass of rows, that a server's states are those of tokens, layers and model.

It is the server that is proven. What is wrong with a row is the row's: others are asked for in its place, and
the mass of rows brings it to its end. A server that is wrong is so for any row.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from draftmill_jobs.engines.client import read_served_models
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.asking import Asked, Asker
from draftmill_jobs.extract.backend import Work
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.remedies import NOT_STAGED, remedy_for
from draftmill_jobs.extract.sampling import Sample
from draftmill_jobs.extract.staging import Staging, StagingError
from draftmill_jobs.extract.teacher import (
    FULL_AGREEMENT,
    HALF_AGREEMENT,
    Agreement,
    TeacherHead,
    load_head,
)
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool
from draftmill_jobs.store import RowRefusedError
from draftmill_jobs.store.checks import check_row
from draftmill_jobs.store.values import to_float32

log = logging.getLogger(__name__)

T = TypeVar("T")

_TRIES: Final = 3  # for a file that does not come
_BAD_ROWS: Final = 2  # of a proof, that are taken for bad ones, and
_BAD_SHARE: Final = 50  # one of so many that are told: a run may lose half of that
_SHOWN: Final = 3  # rows in a refusal
_TEACHER_TOKENS: Final = 1024  # of a row, from its start: logits of all of them are made on the server
_TEACHER_POSITIONS: Final = 2048  # of all rows together


class _BadRowError(Exception):
    """What came for a row cannot be right.

    Attributes:
        reason: As in the quarantine.
        message: In which way.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class _Proof:
    """One proof of an endpoint: the rows to choose from, and those of them that were bad."""

    def __init__(self, endpoint: Endpoint, sample: Sample, *, most_bad: int) -> None:
        self.endpoint = endpoint
        self.sample = sample
        self._most_bad = most_bad
        self._bad: dict[tuple[str, str], str] = {}
        self._remedy = ""  # against what is wrong with the first of them

    def is_bad(self, row: Row) -> bool:
        return row.facts.key in self._bad

    def set_aside(self, row: Row, problem: _BadRowError) -> None:
        """Takes a row for a bad one.

        Raises:
            JobRefusedError: There are too many for that.
        """
        self._bad[row.facts.key] = f"{_words(row)}: {problem.message}"
        self._remedy = self._remedy or remedy_for(problem.reason)
        if len(self._bad) > self._most_bad:
            raise self.refusal()

    def refusal(self) -> JobRefusedError:
        """No row is left that could be right, or too many are not."""
        problems = list(self._bad.values())
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        remedy = f"; {self._remedy}" if self._remedy else ""
        return _disagreement(self.endpoint, "; ".join(problems[:_SHOWN]) + more + remedy)


class Preflight:
    """Has an endpoint compute a short row, a long one, both at once, and rows whose next tokens it tells."""

    def __init__(self, pool: EndpointPool, asker: Asker, staging: Staging, work: Work) -> None:
        self._pool = pool
        self._asker = asker
        self._staging = staging
        self._work = work
        # How often a row was bad, or its server was lost: others are asked for first.
        self._failed: Counter[tuple[str, str]] = Counter()

    async def prove(self, endpoint: Endpoint) -> None:
        """Returns when the endpoint can be trusted.

        Raises:
            JobRefusedError: It cannot; both values are in the message.
            RequestFailedError: It did not answer this time. Another time, it is asked for other rows.
        """
        await asyncio.to_thread(self._staging.purge_forgotten)  # the room is that of its own answers
        length = await self._check_model(endpoint)
        sample = self._work.sample if length is None else self._work.sample.shorter_than(length)
        told = sample.spread(self._work.config().verify.teacher_argmax_sample)
        proof = _Proof(endpoint, sample, most_bad=_BAD_ROWS + len(told) // _BAD_SHARE)
        ends = sample.spread(2)
        short = await self._first_right(proof, ends[-1], self._look)
        long = await self._first_right(proof, ends[0], self._look)
        await self._look_at_once(endpoint, short, long)
        await self._check_teacher(proof, told)
        log.info("endpoint %s passed the preflight", endpoint.spec.name)

    async def _check_model(self, endpoint: Endpoint) -> int | None:
        """The server's max_model_len, if it tells."""
        served = await read_served_models(self._pool.session, endpoint.spec.url)
        name = self._work.config().model.name
        if name not in served:
            names = ", ".join(sorted(served)) or "none"
            raise _disagreement(
                endpoint,
                f"model.name is {name}, and it serves {names}; start it with --served-model-name {name}",
            )
        length = served[name]
        longest = await asyncio.to_thread(self._work.sample.longest)
        if length is not None and length <= longest.tokens:
            raise _disagreement(
                endpoint,
                f"the longest row, {longest}, has {longest.tokens} tokens, and its max_model_len is "
                f"{length}; it must be larger: start it with --max-model-len {longest.tokens + 1}",
            )
        return length

    async def _first_right(
        self, proof: _Proof, place: int, look: Callable[[Endpoint, Row], Awaitable[T]]
    ) -> T:
        """What is seen of the first row near a place that is right; rows that failed before come last.

        Raises:
            JobRefusedError: None is, or too many are not.
        """
        rows = await asyncio.to_thread(proof.sample.near, place)
        for row in sorted(rows, key=self._doubts):
            if proof.is_bad(row):
                continue
            try:
                return await look(proof.endpoint, row)
            except _BadRowError as error:
                log.warning("preflight of endpoint %s: %s: %s", proof.endpoint.spec.name, _words(row), error)
                self._failed[row.facts.key] += 1
                proof.set_aside(row, error)
        raise proof.refusal()

    def _doubts(self, row: Row) -> int:
        return self._failed[row.facts.key] + self._work.keeper.has_given_up(row)

    async def _look(self, endpoint: Endpoint, row: Row) -> Row:
        asked = await self._ask(endpoint, row)
        try:
            self._check(row, asked)
        finally:
            self._staging.discard(asked.staged.path)
        return row

    async def _look_at_once(self, endpoint: Endpoint, *rows: Row) -> None:
        """Rows that are right alone must be so beside each other: they are not to blame any more."""
        looks = (self._look(endpoint, row) for row in rows)
        found = await asyncio.gather(*looks, return_exceptions=True)
        failures = [each for each in found if isinstance(each, BaseException)]
        if failures:
            failure = min(failures, key=lambda each: isinstance(each, _BadRowError))
            if not isinstance(failure, _BadRowError):
                raise failure
            names = " and ".join(map(_words, rows))
            raise _disagreement(
                endpoint,
                f"{names} are right alone, but not beside each other: {failure.message}; "
                f"{remedy_for(failure.reason)}",
            )

    def _check(self, row: Row, asked: Asked) -> None:
        binding = self._work.prepared.binding
        try:
            check_row(
                asked.staged.states,
                token_ids=row.token_ids,
                returned_ids=asked.staged.token_ids,
                layer_ids=binding.layer_ids,
                hidden_size=binding.hidden_size,
            )
        except RowRefusedError as error:
            raise _BadRowError(error.fault, error.message) from error

    async def _ask(self, endpoint: Endpoint, row: Row, *, with_likeliest: bool = False) -> Asked:
        for left in reversed(range(_TRIES)):
            try:
                return await self._asker.ask(endpoint, row.token_ids, with_likeliest=with_likeliest)
            except StagingError as error:
                if not left:
                    raise _BadRowError(NOT_STAGED, f"no states came: {error}") from error
            except RequestFailedError as error:
                raise self._judge(endpoint, row, error) from error
        raise AssertionError("the last try returns or raises")

    def _judge(self, endpoint: Endpoint, row: Row, error: RequestFailedError) -> Exception:
        """What a failed request means."""
        if error.verdict is Verdict.STOP:
            return _disagreement(
                endpoint,
                f"it refuses every request: {error.message}; check its address and access rights",
            )
        if error.verdict is Verdict.DEAD or error.kind is FailureKind.INVALID_RESPONSE:
            return _BadRowError(error.kind, error.message)
        self._failed[row.facts.key] += 1
        return RequestFailedError(
            error.kind, f"{_words(row)}: {error.message}", retry_after=error.retry_after
        )

    @cached_property
    def _head(self) -> TeacherHead:
        return load_head(Path(self._work.config().model.path), self._work.prepared.model)

    async def _check_teacher(self, proof: _Proof, places: list[int]) -> None:
        """The last state, through final norm and output head, must give the server's own likeliest tokens."""
        found = Agreement()
        is_half = False
        tell = partial(self._tell, most=max(1, _TEACHER_POSITIONS // len(places)))
        for place in places:
            told, of_half = await self._first_right(proof, place, tell)
            is_half = is_half or of_half
            found += told
        wanted = HALF_AGREEMENT if is_half else FULL_AGREEMENT
        if not found.is_enough(wanted):
            raise _disagreement(
                proof.endpoint,
                "the last state, through final norm and output head, gives its likeliest token at "
                f"{found.share:.2%} of {found.positions} positions; {wanted:.1%} are expected, with near "
                f"ties at the others ({found.misses - found.ties} are none); the worst: {found.example}. Are "
                "the layers right, and is this the model of model.path?",
            )
        log.info(
            "teacher self-check: %.2f %% of %d positions agree, %d of them within the server's rounding",
            100 * found.share,
            found.positions,
            found.rounded,
        )

    async def _tell(self, endpoint: Endpoint, row: Row, *, most: int) -> tuple[Agreement, bool]:
        """How the head agrees at some positions of a row, and whether its states are of 16 bits."""
        row = _start_of(row)
        if row.tokens == 1:
            return Agreement(), False  # there is no next token
        asked = await self._ask(endpoint, row, with_likeliest=True)
        try:
            self._check(row, asked)
            return await asyncio.to_thread(self._compare, asked, most), asked.staged.is_half
        finally:
            self._staging.discard(asked.staged.path)

    def _compare(self, asked: Asked, most: int) -> Agreement:
        assert asked.likeliest is not None  # noqa: S101 - it was asked for
        positions = np.unique(np.linspace(0, len(asked.likeliest) - 1, most).round().astype(int))
        last = to_float32(np.ascontiguousarray(asked.staged.states[positions, -1]))
        return self._head.compare(last, asked.likeliest[positions], is_half=asked.staged.is_half)


def _start_of(row: Row) -> Row:
    return Row(row.facts, row.token_ids[:_TEACHER_TOKENS], row.loss_mask[:_TEACHER_TOKENS])


def _disagreement(endpoint: Endpoint, sentence: str) -> JobRefusedError:
    return JobRefusedError("PreflightFailed", f"endpoint {endpoint.spec.name}: {sentence}")


def _words(row: Row) -> str:
    return f"row {row} of {row.tokens} tokens"
