"""From an answer to a record, and from a failure to a dead letter: the lines that are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from draftmill_api.record import DeadLetter, FinishReason, RecordStatus, row_id
from draftmill_jobs.engines.base import Answer
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict
from draftmill_jobs.generate.conversations import DeadTurn
from draftmill_jobs.model.answer_text import AnswerReader
from draftmill_jobs.prompts.rows import Question, SourceRow
from draftmill_jobs.shared.length_bias import prompt_bytes

_SHORT: Final = 256  # tokens that any tokenizer decodes at once
_LONG: Final = 32_768  # tokens that a fast one decodes in about a millisecond


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a record says beside the answer.

    Attributes:
        sampling: As it was sent, with the sample's own seed.
        model: The fields of `RecordModel`.
        server: Name of the endpoint.
        attempt: Attempt of the worker.
        created: RFC 3339, UTC.
        latency: Seconds of the request that succeeded.
    """

    dataset: str
    template_arguments: dict[str, Any]
    sampling: dict[str, Any]
    model: dict[str, str]
    server: str
    attempt: int
    created: str
    latency: float


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A record as it is written, what is counted of it, and what its conversation goes on from."""

    data: bytes
    status: RecordStatus
    finish_reason: FinishReason
    completion_tokens: int
    reasoning: str | None
    content: str | None


def record_line(question: Question, answer: Answer, reader: AnswerReader, given: Circumstances) -> RecordLine:
    """The record of an answer, with the fields of `Record` in their order."""
    read = reader.read(answer.prompt_ids, answer.output_ids, answer.finish, answer.text)
    fields = {
        "id": question.id,
        "prompt_key": question.key,
        "sample_id": question.position,
        "dataset": given.dataset,
        "turn": question.prompt.turn if question.turn is None else question.turn,
        "sample": question.sample,
        "prompt_ids": answer.prompt_ids,
        "output_ids": answer.output_ids,
        "prompt_tokens": len(answer.prompt_ids),
        "completion_tokens": len(answer.output_ids),
        "finish_reason": answer.finish,
        "status": read.status,
        "think": read.think,
        "messages": question.prompt.messages,
        "tools": question.prompt.tools,
        "chat_template_kwargs": given.template_arguments,
        "reasoning": read.reasoning,
        "content": read.content,
        "text": read.text,
        "sampling": given.sampling,
        "model": given.model,
        "server": given.server,
        "attempt": given.attempt,
        "created": given.created,
        "latency_s": round(given.latency, 3),
    }
    return RecordLine(
        _line(fields), read.status, answer.finish, len(answer.output_ids), read.reasoning, read.content
    )


def failed_row(
    dataset: str, question: Question, failure: RequestFailedError, *, tries: int, created: str, expected: int
) -> DeadLetter:
    """The dead letter of a row that was asked in vain, and whose answer should have so many tokens."""
    return DeadLetter(
        id=question.id,
        prompt_key=question.key,
        sample_id=question.position,
        dataset=dataset,
        sample=question.sample,
        reason=failure.kind.value,
        message=failure.message,
        permanent=failure.verdict is Verdict.DEAD,
        tries=tries,
        created=created,
        expected_tokens=expected,
        prompt_bytes=prompt_bytes(question.prompt.messages),
    )


def unusable_row(dataset: str, row: SourceRow, sample: int, created: str) -> DeadLetter:
    """The dead letter of a row that holds no prompt."""
    return DeadLetter(
        id=row_id(row.key, sample, row.turn),
        prompt_key=None,
        sample_id=row.position,
        dataset=dataset,
        sample=sample,
        reason="unusable_row",
        message=row.problem[:500],
        permanent=True,
        tries=0,
        created=created,
        expected_tokens=None,
        prompt_bytes=None,
    )


def dead_turn(dataset: str, turn: DeadTurn, created: str) -> DeadLetter:
    """The dead letter of a turn that cannot be asked for the sake of an earlier one."""
    row, cause = turn.row, turn.cause
    return DeadLetter(
        id=row_id(row.key, turn.sample, row.turn),
        prompt_key=row.key,
        sample_id=row.position,
        dataset=dataset,
        sample=turn.sample,
        reason=FailureKind.PREVIOUS_TURN,
        message=f"an earlier turn, {cause.id}, left no answer to go on from: {cause.reason}",
        permanent=cause.permanent,
        tries=0,
        created=created,
        expected_tokens=None,
        prompt_bytes=None,
    )


def encode(letter: DeadLetter) -> bytes:
    """One line of a file: compact JSON, keys in the type's order."""
    return _line(letter.__dict__)


def takes_long(answer: Answer, *, decodes_fast: bool) -> bool:
    """Whether `record_line` may take a millisecond or more: off the event loop with it."""
    return len(answer.output_ids) > (_LONG if decodes_fast else _SHORT)


def _line(fields: dict[str, Any]) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
