"""The proof, before any row is spent, that an endpoint says what the records will hold."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftmill_api.record import FinishReason, RecordStatus
from draftmill_jobs.engines.base import Answer, Ask
from draftmill_jobs.engines.client import read_served_models
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool
from draftmill_jobs.generate.limiter import Limiter
from draftmill_jobs.generate.tokenize import TokenizerThread
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.model.think import read_answer, status_of

log = logging.getLogger(__name__)

_MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Count from one to five."}]
_TOKENS = 16
_WRONG = {FailureKind.INVALID_RESPONSE, FailureKind.COUNT_MISMATCH}  # a wait would not mend them
_TRIES_TO_STOP = 3  # a near tie between two tokens may go either way


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the config says about the servers.

    Attributes:
        template_arguments: Each different one among the datasets.
        longest_answer: Greatest `maxCompletionTokens`.
        context_length: Sequence limit that the servers were started with, None when not known.
    """

    template_arguments: tuple[dict[str, Any], ...]
    longest_answer: int
    context_length: int | None


class Preflight:
    """Asks an endpoint a small question on the real route and compares everything that comes back."""

    def __init__(
        self,
        pool: EndpointPool,
        limiter: Limiter,
        model: TargetModel,
        tokenizer: TokenizerThread,
        expectation: Expectation,
        *,
        alone: Callable[[float], None],
    ) -> None:
        """Takes what is told how many tokens a second a request gets that is alone."""
        self._pool = pool
        self._limiter = limiter
        self._model = model
        self._tokenizer = tokenizer
        self._expectation = expectation
        self._alone = alone

    async def prove(self, endpoint: Endpoint) -> None:
        """Returns when the endpoint can be trusted.

        Raises:
            JobRefusedError: It disagrees; both values are in the message.
            RequestFailedError: It did not answer this time.
        """
        await self._check_model(endpoint)
        for arguments in self._expectation.template_arguments:
            ours = await self._local_ids(arguments)
            answer = await self._ask(endpoint, arguments, ours)
            self._check_prompt(endpoint, arguments, ours, answer)
            self._check_thinking(endpoint, answer)
            await self._check_stop(endpoint, arguments, ours, answer)
            await self._measure(endpoint, arguments, ours, answer)
        log.info("endpoint %s passed the preflight on %s", endpoint.spec.name, endpoint.route.path)

    async def _check_model(self, endpoint: Endpoint) -> None:
        served = await read_served_models(self._pool.session, endpoint.spec.url)
        if self._model.name not in served:
            names = ", ".join(sorted(served)) or "none"
            raise _disagreement(endpoint, "model", f"model.name is {self._model.name}", f"it serves {names}")
        expectation, length = self._expectation, served[self._model.name]
        if length is None:
            return
        if expectation.context_length is not None and length < expectation.context_length:
            raise _disagreement(
                endpoint,
                "context length",
                f"the config says {expectation.context_length}",
                f"it says {length}",
            )
        if expectation.longest_answer >= length:
            raise _disagreement(
                endpoint,
                "context length",
                f"maxCompletionTokens is {expectation.longest_answer}",
                f"its limit for prompt and answer together is {length}",
            )

    async def _ask(
        self,
        endpoint: Endpoint,
        arguments: dict[str, Any],
        prompt_ids: list[int],
        stop_ids: tuple[int, ...] = (),
    ) -> Answer:
        answer, _ = await self._timed(endpoint, arguments, prompt_ids, stop_ids)
        return answer

    async def _timed(
        self,
        endpoint: Endpoint,
        arguments: dict[str, Any],
        prompt_ids: list[int],
        stop_ids: tuple[int, ...] = (),
    ) -> tuple[Answer, float]:
        """An answer, and the seconds that it took once it had a place."""
        ask = Ask(
            request_id=f"preflight-{uuid.uuid4().hex}",
            model=self._model.name,
            messages=_MESSAGES,
            tools=None,
            template_arguments=arguments,
            prompt_ids=prompt_ids,
            sampling={"temperature": 0.0, "top_p": 1.0, "max_completion_tokens": _TOKENS},
            stop_ids=stop_ids,
        )
        with await self._limiter.probe(endpoint):
            began = self._pool.clock()
            try:
                answer = await self._pool.ask(endpoint, ask)
            except RequestFailedError as failure:
                if failure.verdict is Verdict.RETRY and failure.kind not in _WRONG:
                    raise
                raise JobRefusedError(
                    "PreflightFailed",
                    f"endpoint {endpoint.spec.name} ({endpoint.spec.url}{endpoint.route.path}) has no answer "
                    f"to a small question that can be used: {failure.message}",
                ) from failure
            return answer, self._pool.clock() - began

    async def _local_ids(self, arguments: dict[str, Any]) -> list[int]:
        try:
            return await self._tokenizer.prompt_ids(_MESSAGES, None, arguments)
        except RequestFailedError as failure:
            raise JobRefusedError(
                "PreflightFailed", f"with chat template arguments {arguments}, {failure.message}"
            ) from failure

    def _check_prompt(
        self, endpoint: Endpoint, arguments: dict[str, Any], ours: list[int], answer: Answer
    ) -> None:
        if answer.prompt_ids != ours:
            raise _disagreement(
                endpoint,
                f"prompt ids with chat template arguments {arguments}",
                f"the model's folder gives {ours}",
                f"it gives {answer.prompt_ids}",
            )

    def _check_thinking(self, endpoint: Endpoint, answer: Answer) -> None:
        reading = read_answer(self._model.think, answer.prompt_ids, answer.output_ids)
        if status_of(reading, answer.finish) is RecordStatus.MALFORMED:
            raise _disagreement(
                endpoint,
                "think tokens",
                f"family {self._model.think.family} with think={reading.think.value}",
                f"thinking is closed {reading.closed} times in {answer.output_ids}",
            )

    async def _check_stop(
        self, endpoint: Endpoint, arguments: dict[str, Any], prompt_ids: list[int], answer: Answer
    ) -> None:
        """A stop token must be the last of the output ids: its own first token is made one."""
        if answer.finish is FinishReason.STOP and answer.output_ids[-1] not in self._model.stop_ids:
            raise _disagreement(
                endpoint,
                "stop token",
                f"the model's folder names {sorted(self._model.stop_ids)}",
                f"its answer stopped with {answer.output_ids[-1]}",
            )
        first = answer.output_ids[0]
        for _ in range(_TRIES_TO_STOP):
            stopped = await self._ask(endpoint, arguments, prompt_ids, stop_ids=(first,))
            if stopped.finish is FinishReason.STOP and stopped.output_ids == [first]:
                return
            if stopped.finish is FinishReason.STOP and stopped.output_ids[-1] not in (
                first,
                *self._model.stop_ids,
            ):
                raise _disagreement(
                    endpoint,
                    "stop token",
                    f"the answer must end with the stop token {first}",
                    f"its output ids are {stopped.output_ids}",
                )
        log.warning(
            "endpoint %s: greedy answers differ; that the stop token is kept is not proven",
            endpoint.spec.name,
        )

    async def _measure(
        self, endpoint: Endpoint, arguments: dict[str, Any], prompt_ids: list[int], answer: Answer
    ) -> None:
        """How fast a lone request is, which tells how the last ones of the run will be.

        What an answer takes beyond a shorter one to the same prompt is its tokens' time, now that the server
        has been asked before.
        """
        if endpoint.load:
            return
        stop_ids = (answer.output_ids[0],)
        short, before = await self._timed(endpoint, arguments, prompt_ids, stop_ids)
        long, whole = await self._timed(endpoint, arguments, prompt_ids)
        tokens, seconds = len(long.output_ids) - len(short.output_ids), whole - before
        if tokens > 0 and seconds > 0:
            self._alone(tokens / seconds)


def _disagreement(endpoint: Endpoint, what: str, ours: str, theirs: str) -> JobRefusedError:
    return JobRefusedError(
        "PreflightFailed", f"endpoint {endpoint.spec.name} disagrees on {what}: {ours}, {theirs}"
    )
