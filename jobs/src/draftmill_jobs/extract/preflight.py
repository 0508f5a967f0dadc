"""The proof, before the mass of rows, that a server's states are those of tokens, layers and model."""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from draftmill_jobs.engines.client import read_served_models
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.asking import Asked, Asker
from draftmill_jobs.extract.backend import Work
from draftmill_jobs.extract.records import Row
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

_TRIES: Final = 3  # for a file that does not come
_TEACHER_TOKENS: Final = 1024  # of a row, from its start: logits of all of them are made on the server
_TEACHER_POSITIONS: Final = 2048  # of all rows together


class Preflight:
    """Has an endpoint compute a short row, a long one, both at once, and rows whose next tokens it tells."""

    def __init__(self, pool: EndpointPool, asker: Asker, staging: Staging, work: Work) -> None:
        self._pool = pool
        self._asker = asker
        self._staging = staging
        self._work = work

    async def prove(self, endpoint: Endpoint) -> None:
        """Returns when the endpoint can be trusted.

        Raises:
            JobRefusedError: It cannot; both values are in the message.
            RequestFailedError: It did not answer this time.
        """
        wanted = max(2, self._work.config().verify.teacher_argmax_sample)
        rows = await asyncio.to_thread(self._work.sample, wanted)
        longest, shortest = rows[0], rows[-1]
        await self._check_model(endpoint, longest)
        await self._look(endpoint, shortest)
        await self._look(endpoint, longest)
        await asyncio.gather(self._look(endpoint, shortest), self._look(endpoint, longest))
        await self._check_teacher(endpoint, rows)
        log.info("endpoint %s passed the preflight", endpoint.spec.name)

    async def _check_model(self, endpoint: Endpoint, longest: Row) -> None:
        served = await read_served_models(self._pool.session, endpoint.spec.url)
        name = self._work.config().model.name
        if name not in served:
            names = ", ".join(sorted(served)) or "none"
            raise _disagreement(endpoint, f"model.name is {name}, and it serves {names}")
        length = served[name]
        if length is not None and length <= longest.tokens:
            raise _disagreement(
                endpoint,
                f"the longest row, {longest}, has {longest.tokens} tokens, and its max_model_len is "
                f"{length}; it must be larger",
            )

    async def _look(self, endpoint: Endpoint, row: Row) -> None:
        asked = await self._ask(endpoint, row)
        try:
            self._check(endpoint, row, asked)
        finally:
            self._staging.discard(asked.staged.path)

    def _check(self, endpoint: Endpoint, row: Row, asked: Asked) -> None:
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
            raise _disagreement(endpoint, f"row {row} of {row.tokens} tokens: {error.message}") from error

    async def _ask(self, endpoint: Endpoint, row: Row, *, with_likeliest: bool = False) -> Asked:
        for left in reversed(range(_TRIES)):
            try:
                return await self._asker.ask(endpoint, row.token_ids, with_likeliest=with_likeliest)
            except StagingError as error:
                if not left:
                    raise _disagreement(endpoint, f"it writes no states: {error}; see its log") from error
            except RequestFailedError as error:
                if error.verdict is Verdict.RETRY and error.kind is not FailureKind.INVALID_RESPONSE:
                    raise
                raise _disagreement(endpoint, f"row {row} of {row.tokens} tokens: {error.message}") from error
        raise AssertionError("the last try returns or raises")

    @cached_property
    def _head(self) -> TeacherHead:
        return load_head(Path(self._work.config().model.path), self._work.prepared.model)

    async def _check_teacher(self, endpoint: Endpoint, rows: list[Row]) -> None:
        """The last state, through final norm and output head, must give the server's own likeliest tokens."""
        found = Agreement()
        is_half = False
        most = max(1, _TEACHER_POSITIONS // len(rows))
        for row in (_start_of(row) for row in rows if row.tokens > 1):
            asked = await self._ask(endpoint, row, with_likeliest=True)
            try:
                self._check(endpoint, row, asked)
                is_half = is_half or asked.staged.is_half
                found += await asyncio.to_thread(self._compare, asked, most)
            finally:
                self._staging.discard(asked.staged.path)
        wanted = HALF_AGREEMENT if is_half else FULL_AGREEMENT
        if not found.is_enough(wanted):
            raise _disagreement(
                endpoint,
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

    def _compare(self, asked: Asked, most: int) -> Agreement:
        assert asked.likeliest is not None  # noqa: S101 - it was asked for
        positions = np.unique(np.linspace(0, len(asked.likeliest) - 1, most).round().astype(int))
        last = to_float32(np.ascontiguousarray(asked.staged.states[positions, -1]))
        return self._head.compare(last, asked.likeliest[positions], is_half=asked.staged.is_half)


def _start_of(row: Row) -> Row:
    return Row(row.facts, row.token_ids[:_TEACHER_TOKENS], row.loss_mask[:_TEACHER_TOKENS])


def _disagreement(endpoint: Endpoint, sentence: str) -> JobRefusedError:
    return JobRefusedError("PreflightFailed", f"endpoint {endpoint.spec.name}: {sentence}")
