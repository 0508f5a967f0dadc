"""A job's last words to the operator, small enough for the kubelet by construction."""

from __future__ import annotations

import os
from pathlib import Path

from draftmill_api.names import TERMINATION_MESSAGE_LIMIT, TERMINATION_MESSAGE_VARIABLE
from draftmill_api.progress import TerminationMessage


def encode(message: TerminationMessage, limit: int = TERMINATION_MESSAGE_LIMIT) -> bytes:
    """The message as JSON of at most `limit` bytes.

    Free text is shortened until it fits; if it does not, the counts of single datasets are left out.

    Raises:
        ValueError: It does not fit even without these.
    """
    for candidate in (message, _without_dataset_counts(message)):
        for text_limit in (1024, 512, 256, 128, 64, 0):
            shortened = _shortened(candidate, text_limit)
            data = shortened.model_dump_json(by_alias=True, exclude_none=True).encode()
            if len(data) <= limit:
                return data
    raise ValueError(f"a termination message of {len(data)} bytes cannot be brought under {limit}")


def write(message: TerminationMessage) -> None:
    """Leaves the message where the kubelet reads it; outside Kubernetes there is no such place."""
    path = os.environ.get(TERMINATION_MESSAGE_VARIABLE)
    if path:
        Path(path).write_bytes(encode(message))


def _shortened(message: TerminationMessage, limit: int) -> TerminationMessage:
    refusal, finish = message.refusal, message.finish
    if refusal is not None:
        refusal = refusal.model_copy(update={"message": _cut(refusal.message, limit)})
    if finish is not None:
        failures = [
            failure.model_copy(update={"message": _cut(failure.message, limit)})
            for failure in finish.failures
        ]
        finish = finish.model_copy(update={"failures": failures})
    return message.model_copy(update={"refusal": refusal, "finish": finish})


def _without_dataset_counts(message: TerminationMessage) -> TerminationMessage:
    if message.finish is None:
        return message
    return message.model_copy(update={"finish": message.finish.model_copy(update={"dataset_counts": []})})


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…" if limit else ""
