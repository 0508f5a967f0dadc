"""Asking a vLLM server for the states of one row."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from draftmill_jobs.engines.base import list_of, object_of
from draftmill_jobs.engines.client import post
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.vllm import VllmCompletions
from draftmill_jobs.extract.staging import StagedStates, Staging
from draftmill_jobs.generate.endpoints import Endpoint, EndpointPool

PATH: Final = VllmCompletions.path


@dataclass(frozen=True, slots=True)
class Asked:
    """What came back.

    Attributes:
        staged: The states.
        likeliest: `int32[T - 1]`, when it was asked for: at t the token that the server finds likeliest after
            tokens 0 to t.
    """

    staged: StagedStates
    likeliest: NDArray[np.int32] | None


class Asker:
    """Sends requests and finds what they staged."""

    def __init__(self, pool: EndpointPool, staging: Staging, model: str) -> None:
        """Takes the servers, their folder, and the name under which they serve the model."""
        self._pool = pool
        self._staging = staging
        self._model = model

    async def ask(
        self, endpoint: Endpoint, token_ids: NDArray[np.int32], *, with_likeliest: bool = False
    ) -> Asked:
        """Has the states of some tokens computed. The staged file stays until it is discarded.

        Raises:
            RequestFailedError: There is no answer.
            StagingError: There is an answer but no whole file.
            JobError: The server writes elsewhere, or what it wrote cannot be deleted.
        """
        request = f"{self._staging.prefix}{uuid.uuid4().hex}"
        try:
            answer = await self._post(endpoint, request, token_ids, with_likeliest=with_likeliest)
            path = self._staging.expected(_path_in(answer))
        except BaseException:
            self._staging.forget(request)
            raise
        try:
            staged = await self._staging.read(path)
            return Asked(staged, _likeliest(answer, len(token_ids)) if with_likeliest else None)
        except BaseException:
            self._staging.discard(path)
            raise

    async def _post(
        self, endpoint: Endpoint, request: str, token_ids: NDArray[np.int32], *, with_likeliest: bool
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": token_ids.tolist(),
            "request_id": request,
            "max_tokens": 1,
            "temperature": 0.0,
        }
        if with_likeliest:
            body["prompt_logprobs"] = 1
        async with self._pool.watched(endpoint) as byte_came:
            return await post(
                self._pool.session,
                endpoint.spec.url,
                PATH,
                orjson.dumps(body),
                connect_timeout=self._pool.connect_timeout(),
                byte_came=byte_came,
            )


def _path_in(answer: dict[str, Any]) -> str:
    said = object_of(answer.get("kv_transfer_params"), "kv_transfer_params").get("hidden_states_path")
    if not isinstance(said, str):
        raise RequestFailedError(
            FailureKind.INVALID_RESPONSE,
            "the answer names no hidden_states_path: was the server started with its connector?",
        )
    return said


def _likeliest(answer: dict[str, Any], tokens: int) -> NDArray[np.int32]:
    """The first of each position in `prompt_logprobs`; that of position p is for the tokens before p."""
    choices = list_of(answer.get("choices"), "choices")
    entries = list_of(object_of(choices[0] if choices else None, "choice").get("prompt_logprobs"), "logprobs")
    if len(entries) != tokens:
        raise RequestFailedError(
            FailureKind.INVALID_RESPONSE, f"the answer has {len(entries)} prompt_logprobs for {tokens} tokens"
        )
    found = np.empty(tokens - 1, np.int32)
    for place, entry in enumerate(entries[1:]):
        first = [token for token, each in object_of(entry, "logprobs").items() if each.get("rank") == 1]
        if len(first) != 1:
            raise RequestFailedError(
                FailureKind.INVALID_RESPONSE,
                f"prompt_logprobs name {len(first)} likeliest tokens at {place + 1}",
            )
        found[place] = int(first[0])
    return found
