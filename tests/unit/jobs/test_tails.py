"""What a crash leaves at a file's end is cut off, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared import tails
from draftmill_jobs.shared.lines import render_lines
from draftmill_jobs.shared.tails import cut_torn_tail

LINES = [b'{"n": %d}\n' % number for number in range(5)]
WHOLE = b"".join(LINES)


def is_whole(line: bytes) -> bool:
    return line.startswith(b"{") and line.endswith(b"}\n")


TAILS = {
    "nothing": b"",
    "half a line": b'{"n": 5',
    "a whole line without its end": b'{"n": 5}',
    "half a character": '{"n": "é'.encode()[:-1],
    "blank lines": b"\n\n",
    "half a line and blank lines": b'{"n": 5\n\n',
    "zeros": b"\0" * 5000,
    "half a line and zeros": b'{"n": 5' + b"\0" * 5000,
    "zeros and a newline": b"\0" * 5000 + b"\n",
    "zeros before lines that were written out of turn": b"\0" * 5000 + b"\n" + WHOLE,
    "a line with zeros in it, before lines": b'{"n":\0\0}\n' + WHOLE,
    "what stood on the disk before": b"\x7fELF\x02\n\x93\n\xff\xfe",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_what_is_behind_the_last_whole_line_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(WHOLE + tail)
    assert cut_torn_tail(path, is_whole) == len(tail)
    assert path.read_bytes() == WHOLE
    assert cut_torn_tail(path, is_whole) == 0


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_a_file_that_never_had_a_whole_line_is_emptied(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(tail.removesuffix(WHOLE))
    cut_torn_tail(path, is_whole)
    assert path.read_bytes() == b""


def test_long_lines_are_found_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "_BLOCK", 16)
    path, long = tmp_path / "lines.jsonl", b'{"n": "' + b"x" * 100 + b'"}\n'
    path.write_bytes(long * 3 + long[:60])
    assert cut_torn_tail(path, is_whole) == 60
    path.write_bytes(long * 3 + b"\0" * 40 + long)
    assert cut_torn_tail(path, is_whole) == 40 + len(long)


@pytest.mark.parametrize("name", ["lines.jsonl", "lines.jsonl.zst"])
def test_more_than_a_crash_can_leave_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tails, "MOST_UNSYNCED", 100)
    path = tmp_path / name
    content = render_lines(path, LINES) + b"something else\n" * 10
    path.write_bytes(content)
    with pytest.raises(JobRefusedError, match="hold no whole record, which no crash leaves"):
        cut_torn_tail(path, is_whole)
    assert path.read_bytes() == content


FRAMES, LAST_FRAME = (render_lines(Path("lines.jsonl.zst"), lines) for lines in (LINES, LINES[:1]))
TORN_FRAMES = {
    "half a frame": FRAMES[: len(FRAMES) // 2],
    "two bytes of a frame": FRAMES[:2],
    "zeros": b"\0" * 5000,
    "something else": b"torn",
    "zeros before a frame that was written out of turn": FRAMES[:9] + b"\0" * 5000 + LAST_FRAME,
}


@pytest.mark.parametrize("tail", TORN_FRAMES.values(), ids=TORN_FRAMES.keys())
def test_what_is_behind_the_last_whole_frame_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "lines.jsonl.zst"
    path.write_bytes(FRAMES + tail)
    assert cut_torn_tail(path, is_whole) == len(tail)
    assert path.read_bytes() == FRAMES
