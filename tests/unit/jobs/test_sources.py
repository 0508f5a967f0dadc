"""Files and folders as sources of rows: every kind gives the same rows, streamed or by position."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from draftmill_api.jobconfig import JobSource
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.prompts.sources.array import array_items
from draftmill_jobs.prompts.sources.base import BrokenRow, Source
from draftmill_jobs.prompts.sources.opening import open_source

ROWS: list[dict[str, Any]] = [{"prompt": f"question {i}"} for i in range(700)]
LINES = "\n".join(json.dumps(row) for row in ROWS).encode() + b"\n\n"
ARRAY = b"  \n" + json.dumps(ROWS, indent=1).encode()


def zstd(data: bytes) -> bytes:
    """Two frames, as of two programs that wrote one after the other."""
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def write_parquet(path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=300)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    match path.suffix:
        case ".zst":
            path.write_bytes(zstandard.compress(lines))
        case ".json":
            path.write_text(json.dumps(rows))
        case _:
            parquet.write_table(pa.Table.from_pylist(rows), path)


def write_arrow(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=300)


FILES: dict[str, Callable[[Path], object]] = {
    "rows.jsonl": lambda path: path.write_bytes(LINES),
    "rows.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
    "rows.jsonl.zst": lambda path: path.write_bytes(zstd(LINES)),
    "lines.json": lambda path: path.write_bytes(LINES),
    "array.json": lambda path: path.write_bytes(ARRAY),
    "array.json.gz": lambda path: path.write_bytes(gzip.compress(ARRAY)),
    "array.json.zst": lambda path: path.write_bytes(zstd(ARRAY)),
    "rows.parquet": write_parquet,
    "rows.arrow": write_arrow,
}


def file_source(path: Path) -> Source:
    return open_source(JobSource.model_validate({"file": {"path": str(path)}}), path.parent / "answers")


def folder_source(folder: Path, **fields: str) -> Source:
    source = JobSource.model_validate({"folder": {"path": str(folder), **fields}})
    return open_source(source, folder.parent / "answers")


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_rows_streamed_or_by_position(tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    opened = file_source(tmp_path / name)
    assert list(opened.rows()) == list(opened.rows()) == ROWS
    assert opened.identity() == file_source(tmp_path / name).identity()
    wanted = [0, 1, 299, 300, 699]
    assert list(opened.rows(wanted)) == [ROWS[position] for position in wanted]
    positions = [699, 0, 300, 299, 1, 0]
    with opened.indexed(tmp_path) as indexed:
        assert len(indexed) == len(ROWS)
        assert list(indexed.rows_at(positions)) == [ROWS[position] for position in positions]
        assert [path.name for path in tmp_path.iterdir()] == [name], "a copy has no name"


COLUMNS: dict[str, list[Any]] = {
    "messages": [[{"role": "user", "content": "w1"}], [], [{"role": "user", "content": "w2"}] * 3],
    "kind": [1, 0, 1],
    "tools": [None, [{"name": "f", "limit": 3}], {"name": "g"}],
}


@pytest.mark.parametrize("mixed", [False, True], ids=["plain columns", "a column that is decoded"])
def test_files_of_the_datasets_library_give_what_the_library_gives(tmp_path: Path, *, mixed: bool) -> None:
    turn = {"role": datasets.Value("string"), "content": datasets.Value("string")}
    features = {"messages": datasets.List(turn), "kind": datasets.ClassLabel(names=["a", "b"])}
    features |= {"tools": datasets.Json()} if mixed else {}
    columns = {name: COLUMNS[name] for name in features}
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    made.save_to_disk(str(tmp_path))
    (path,) = tmp_path.glob("*.arrow")
    opened = file_source(path)
    expected = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert list(opened.rows()) == list(made) == expected
    assert list(opened.rows([0, 2])) == [expected[0], expected[2]]


def test_arrow_is_not_mapped_into_memory_where_its_pages_would_stay(tmp_path: Path) -> None:
    write_arrow(tmp_path / "rows.arrow")
    for _ in file_source(tmp_path / "rows.arrow").rows():
        assert "rows.arrow" not in Path("/proc/self/maps").read_text()


def test_an_arrow_file_that_ends_too_soon_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    write_arrow(path)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(JobRefusedError, match=r"cannot read .*rows\.arrow as Arrow"):
        list(file_source(path).rows())


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    for name in ("b.jsonl", "a/2.jsonl.gz", "a/10.jsonl", "c.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "b.jsonl").write_text('{"prompt": "b"}\n')
    (folder / "a" / "10.jsonl").write_text('{"prompt": "10"}\n')
    (folder / "a" / "2.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "2"}'))
    parquet.write_table(pa.Table.from_pylist([{"prompt": "c"}]), folder / "c.parquet")
    (folder / "README.md").write_text("no prompts")
    (folder / ".hidden.jsonl").write_text("{}")
    every = folder_source(folder)
    assert [row["prompt"] for row in every.rows()] == ["10", "2", "b", "c"]
    assert [row["prompt"] for row in every.rows([1, 3])] == ["2", "c"]
    assert every.identity() != folder_source(folder, pattern="*.jsonl").identity()
    with every.indexed(tmp_path) as indexed:
        assert [row["prompt"] for row in indexed.rows_at([3, 0, 2, 1])] == ["c", "10", "b", "2"]
    assert [row["prompt"] for row in folder_source(folder, pattern="*.jsonl").rows()] == ["b"]
    assert [row["prompt"] for row in folder_source(folder, pattern="a/*.jsonl*").rows()] == ["10", "2"]
    with pytest.raises(JobRefusedError, match=r"no file of .* matches \*\.md and is .*README\.md is of"):
        folder_source(folder, pattern="*.md")
    with pytest.raises(JobRefusedError, match="there is no folder of prompts at"):
        folder_source(folder / "none")


def test_a_line_that_is_no_json_is_a_broken_row_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n\n{"prompt":\n\n{"prompt": "b"}')
    opened = file_source(path)
    first, broken, last = opened.rows()
    assert (first, last) == ({"prompt": "a"}, {"prompt": "b"})
    assert isinstance(broken, BrokenRow)
    assert broken.line == b'{"prompt":\n'
    assert broken.problem.startswith("not JSON: ")
    with opened.indexed(tmp_path) as indexed:
        assert list(indexed.rows_at([0, 1, 2])) == [first, broken, last]


REFUSALS: dict[str, tuple[str, bytes, str, str]] = {
    "missing": ("none.jsonl", b"", "PromptsNotFound", "no file of prompts at"),
    "kind": ("rows.csv", b"", "PromptsUnreadable", "use a .jsonl or .json file"),
    "packed Parquet": ("rows.parquet.gz", b"", "PromptsUnreadable", "use a .jsonl or .json file"),
    "not Parquet": ("bad.parquet", b"[{]", "PromptsUnreadable", "is not Parquet"),
    "not Arrow": ("bad.arrow", b"[{]", "PromptsUnreadable", "as Arrow"),
    "not JSON": (
        "bad.json",
        b"[{]",
        "PromptsUnreadable",
        "is not JSON: item 1: Expecting property name",
    ),
    "JSON that ends": ("bad.json", b'[{"a": 1}, {"b": ', "PromptsUnreadable", "item 2: Expecting value"),
    "more than an array": ("bad.json", b"[1] x", "PromptsUnreadable", "'x' stands behind the array"),
    "not UTF-8": ("bad.json", b'["\xff"]', "PromptsUnreadable", "can't decode byte 0xff"),
    "not gzip": ("bad.jsonl.gz", b"{}", "PromptsUnreadable", "bad.jsonl.gz is damaged or cut off"),
    "half of gzip": ("bad.jsonl.gz", gzip.compress(LINES)[:-9], "PromptsUnreadable", "damaged or cut off"),
    "not zstd": ("bad.jsonl.zst", b"{}", "PromptsUnreadable", "bad.jsonl.zst is damaged or cut off"),
    "half of zstd": ("bad.jsonl.zst", zstd(LINES)[:-9], "PromptsUnreadable", "it ends within a frame"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_source_that_cannot_be_read_is_refused(tmp_path: Path, what: str) -> None:
    name, content, reason, message = REFUSALS[what]
    if name != "none.jsonl":
        (tmp_path / name).write_bytes(content)
    with pytest.raises(JobRefusedError, match=message) as refused:
        list(file_source(tmp_path / name).rows())
    assert refused.value.reason == reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(items=st.lists(JSON, max_size=5), size=st.integers(1, 40), indent=st.sampled_from([None, 1]))
def test_an_array_reads_the_same_in_any_pieces(items: list[Any], size: int, indent: int | None) -> None:
    text = json.dumps(items, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert list(array_items(pieces)) == items


def test_what_is_wrong_early_in_an_array_is_said_before_the_rest_is_read() -> None:
    read = 0

    def pieces() -> Any:
        nonlocal read
        yield b'[{"a": 1}, {"b" 2}, '
        while True:
            read += 1
            yield b'{"c": 3}, ' * 100

    with pytest.raises(ValueError, match="item 2: Expecting ':' delimiter"):
        list(array_items(pieces()))
    assert read <= 1


@pytest.mark.parametrize("name", ["rows.jsonl.zst", "array.json", "rows.parquet"])
@pytest.mark.parametrize("by_position", [False, True], ids=["streamed", "by position"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str, by_position: bool) -> None:
    """Public failure 31 (vllm#30268, #5774): all prompts were held, and the memory of the machine ran out."""

    def peak(count: int) -> int:
        rows = [{"prompt": random.Random(number).randbytes(250).hex()} for number in range(count)]
        folder = tmp_path / f"{count}"
        folder.mkdir()
        write_rows(folder / name, rows)
        del rows
        tracemalloc.start()
        try:
            read = 0
            if by_position:
                with file_source(folder / name).indexed(folder) as indexed:
                    read = sum(1 for _ in indexed.rows_at(range(count)))
            else:
                read = sum(1 for _ in file_source(folder / name).rows())
            assert read == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(4000), peak(12_000)
    assert (many - few) / 8000 < 100, "bytes a row, each of which has 500"
