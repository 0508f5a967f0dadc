"""A job's last words to the operator, small enough for the kubelet by construction."""

from __future__ import annotations

import os
from pathlib import Path

from draftmill_api.names import (
    TERMINATION_MESSAGE_CUT,
    TERMINATION_MESSAGE_LIMIT,
    TERMINATION_MESSAGE_VARIABLE,
)
from draftmill_api.progress import TerminationMessage
from draftmill_api.v1alpha1.status import Failure

_SHORTER = (
    *((characters, True) for characters in (1024, 512, 256, 128)),
    *((characters, False) for characters in (256, 128, 64, 0)),
)
"""Characters of each free text, and whether remedies stay, in the order in which they are tried."""


def encode(message: TerminationMessage, limit: int = TERMINATION_MESSAGE_LIMIT) -> bytes:
    """The message as JSON of at most `limit` bytes.

    Free text is shortened until it fits, with the remedies left out before it gets too short to be of use:
    who reads it knows them from the failures that the workers told of. If it does not fit then, the counts of
    single datasets are left out.

    Raises:
        ValueError: It does not fit even without these.
    """
    for candidate in (message, _without_dataset_counts(message)):
        for text_limit, with_remedies in _SHORTER:
            shortened = _shortened(candidate, text_limit, with_remedies=with_remedies)
            data = shortened.model_dump_json(by_alias=True, exclude_none=True, exclude_defaults=True).encode()
            if len(data) <= limit:
                return data
    raise ValueError(f"a termination message of {len(data)} bytes cannot be brought under {limit}")


def write(message: TerminationMessage) -> None:
    """Leaves the message where the kubelet reads it; outside Kubernetes there is no such place."""
    path = os.environ.get(TERMINATION_MESSAGE_VARIABLE)
    if path:
        Path(path).write_bytes(encode(message))


def _shortened(message: TerminationMessage, limit: int, *, with_remedies: bool) -> TerminationMessage:
    refusal, finish, extracted = message.refusal, message.finish, message.extract_finish
    if refusal is not None:
        refusal = refusal.model_copy(update={"message": _cut(refusal.message, limit)})
    if finish is not None:
        failures = _shortened_failures(finish.failures, limit, with_remedies=with_remedies)
        finish = finish.model_copy(update={"failures": failures})
    if extracted is not None:
        failures = _shortened_failures(extracted.failures, limit, with_remedies=with_remedies)
        extracted = extracted.model_copy(update={"failures": failures})
    return message.model_copy(update={"refusal": refusal, "finish": finish, "extract_finish": extracted})


def _shortened_failures(failures: list[Failure], limit: int, *, with_remedies: bool) -> list[Failure]:
    return [
        failure.model_copy(
            update={
                "message": _cut(failure.message, limit),
                "remedy": failure.remedy if with_remedies else "",
            }
        )
        for failure in failures
    ]


def _without_dataset_counts(message: TerminationMessage) -> TerminationMessage:
    if message.finish is None:
        return message
    return message.model_copy(update={"finish": message.finish.model_copy(update={"dataset_counts": []})})


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[: limit - 1] + TERMINATION_MESSAGE_CUT if limit else ""
