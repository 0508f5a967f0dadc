"""Lines in files that grow, bare and compressed: what was written whole is read, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.shared.files import AppendOnlyFile
from draftmill_jobs.shared.lines import raw_lines, read_line_at, render_lines, whole_frame_from

EACH_KIND = pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
LINES = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"") + b"\n")
GROUPS = st.lists(st.lists(LINES, min_size=1, max_size=5), min_size=1, max_size=6)


def write(path: Path, groups: list[list[bytes]]) -> list[int]:
    """Appends each group by itself; returns where each ends."""
    file, ends = AppendOnlyFile(path), []
    for group in groups:
        file.append(render_lines(path, group))
        ends.append(path.stat().st_size)
    file.close()
    return ends


@EACH_KIND
@given(groups=GROUPS)
def test_lines_come_back_in_order_and_each_is_found_again_by_its_place(
    name: str, groups: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / name
    write(path, groups)
    lines = list(raw_lines(path))
    assert [line.raw for line in lines] == [line for group in groups for line in group]
    assert [read_line_at(path, line.place) for line in lines] == [line.raw for line in lines]
    assert lines[-1].end == path.stat().st_size


@EACH_KIND
@given(groups=GROUPS, cut=st.integers(1, 200), zeros=st.integers(0, 60))
def test_a_torn_group_takes_no_other_with_it(
    name: str, groups: list[list[bytes]], cut: int, zeros: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / name
    *before, end = [0, *write(path, groups)]
    size = max(0, end - cut)
    path.write_bytes(path.read_bytes()[:size] + bytes(zeros))
    whole = [
        line
        for group, after in zip(groups, [*before[1:], end], strict=True)
        if after <= size
        for line in group
    ]
    lines = list(raw_lines(path))
    assert [line.raw for line in lines][: len(whole)] == whole
    behind = lines[len(whole) :]
    assert bool(behind) is (path.stat().st_size > max(after for after in [*before, end] if after <= size))


def test_a_broken_frame_is_known_and_those_behind_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    first, second, _ = write(path, [[b"one\n"], [b"two\n"], [b"three\n"]])
    data = bytearray(path.read_bytes())
    data[second - 6] ^= 255
    path.write_bytes(data)
    assert [(line.raw, line.end) for line in raw_lines(path)] == [
        (b"one\n", first),
        (b"", second),
        (b"three\n", len(data)),
    ]


def test_other_programs_read_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    write(path, [[b"one\n", b"two\n"], [b"three\n"]])
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as whole,
    ):
        assert whole.read() == b"one\ntwo\nthree\n"


def test_a_large_group_becomes_several_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    write(path, [[b"%07d\n" % number + b"x" * 1000 + b"\n" for number in range(9000)]])
    lines = list(raw_lines(path))
    assert len(lines) == 18_000
    assert len({line.end for line in lines}) == 3
    assert read_line_at(path, lines[17_998].place) == b"0008999\n"


@EACH_KIND
def test_a_reader_is_told_every_byte_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write(path, [[b"one\n"], [b"two\n"]])
    path.write_bytes(path.read_bytes() + b"torn")
    digest = hashlib.sha256()
    list(raw_lines(path, digest.update))
    assert digest.digest() == hashlib.sha256(path.read_bytes()).digest()


def test_a_whole_frame_is_found_from_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    _, second = write(path, [[b"one\n"], [b"two\n"]])
    path.write_bytes(path.read_bytes() + b"(\xb5/\xfdtorn")
    assert whole_frame_from(path, 0) == b"one\n"
    assert whole_frame_from(path, 1) == b"two\n"
    assert whole_frame_from(path, second) == b"one\n"
    path.write_bytes(b"torn")
    assert whole_frame_from(path, 2) == b""
