"""The quick look at a record says what parsing it would say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from draftmill_api.record import FinishReason, RecordStatus
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.heads import Head, glance, read_head, read_heads
from tests.support.records import key, record

TRICKY = 'He wrote: ],"prompt_tokens":7,"completion_tokens":9,"finish_reason":"stop","status":"ok",\n"}'


def line(number: int = 7, **fields: Any) -> bytes:
    return f"{record(number, TRICKY).model_copy(update=fields).model_dump_json()}\n".encode()


@pytest.mark.parametrize("status", RecordStatus)
def test_every_record_that_the_writer_writes_is_seen_at_a_glance(status: RecordStatus) -> None:
    fields: dict[str, Any] = {
        "status": status,
        "finish_reason": FinishReason.TOOL_CALLS,
        "id": f"{key(7)}-s12",
    }
    assert glance(line(**fields)) == Head(f"{key(7)}-s12", 2, "tool_calls", status)
    assert glance(line(prompt_ids=[], output_ids=[])) is not None
    assert glance(line(dataset="B1_a.b-c")) is not None


def test_a_record_in_another_layout_is_parsed() -> None:
    other = orjson.dumps(orjson.loads(line()), option=orjson.OPT_INDENT_2).replace(b"\n", b" ") + b"\n"
    assert glance(other) is None
    assert read_head(other) == read_head(line())


def glued() -> dict[str, bytes]:
    """A line that was appended to a torn one."""
    whole = line(1)
    places = {
        "in the ids of the prompt": whole.index(b"prompt_ids") + 14,
        "in the ids of the answer": whole.index(b"output_ids") + 14,
        "in the counts": whole.index(b"completion_tokens") + 20,
        "in its head": 20,
    }
    return {name: whole[:place] + line(2) for name, place in places.items()}


@pytest.mark.parametrize("raw", glued().values(), ids=glued().keys())
def test_two_records_on_one_line_are_none(raw: bytes) -> None:
    assert read_head(raw) is None


@pytest.mark.parametrize("cut", [1, 2, 40, 300])
def test_a_torn_record_is_none(cut: int) -> None:
    assert read_head(line()[:-cut]) is None


def test_a_line_with_an_id_and_no_counts_is_no_record() -> None:
    assert read_head(orjson.dumps({"id": key(1)}) + b"\n") is None


def test_a_file_is_read_up_to_its_torn_tail_and_refused_with_a_broken_line_inside(tmp_path: Path) -> None:
    path = tmp_path / "raw_responses.jsonl"
    path.write_bytes(line(1) + line(2) + line(3)[:50])
    assert [head.id for head in read_heads(path)] == [key(1), key(2)]
    path.write_bytes(line(1) + line(2)[:50] + b"\n" + line(3))
    with pytest.raises(JobRefusedError, match=f"line at byte {len(line(1))} is no record"):
        list(read_heads(path))
