"""The tokenizer off the event loop: in one thread, for it is not safe in two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.model.facts import TargetModel
from draftmill_jobs.model.tokenizer import TemplateError

T = TypeVar("T")


class TokenizerThread:
    """Runs whatever touches the tokenizer, one call at a time."""

    def __init__(self, model: TargetModel) -> None:
        self._tokenizer = model.tokenizer
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")

    async def prompt_ids(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, arguments: dict[str, Any]
    ) -> list[int]:
        """The chat template's result as token ids.

        Raises:
            RequestFailedError: The template refuses the messages.
        """
        loop = asyncio.get_running_loop()
        call = partial(self._tokenizer.prompt_ids, messages, tools, arguments)
        try:
            return await loop.run_in_executor(self._thread, call)
        except TemplateError as error:
            raise RequestFailedError(
                FailureKind.TEMPLATE_REFUSED, f"the chat template refuses the messages: {error}"
            ) from error

    async def run(self, decoding: Callable[[], T]) -> T:
        """Calls a function that decodes token ids."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, decoding)

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
