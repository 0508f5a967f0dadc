from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_cli.errors import CliError
from draftmill_cli.records import record_files, spread
from tests.support.records import key, record, write


def test_files_are_found_by_dataset_below_the_output_folder(tmp_path: Path) -> None:
    first = write(tmp_path / "B1" / "raw_responses.jsonl", [record(0)])
    second = write(tmp_path / "B2" / "raw_responses-0.jsonl", [record(1)])
    (tmp_path / "summary.json").write_text("{}")

    assert record_files(tmp_path) == {"B1": [first], "B2": [second]}
    assert record_files(tmp_path / "B2") == {"B2": [second]}


def test_a_folder_without_records_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=str(tmp_path)):
        record_files(tmp_path)


def test_samples_come_from_the_whole_file(tmp_path: Path) -> None:
    file = write(tmp_path / "raw_responses.jsonl", [record(number) for number in range(100)])

    chosen = [each.sample_id for each in spread([file], 4)]

    assert len(chosen) == 4
    assert [number // 25 for number in chosen] == [0, 1, 2, 3]


def test_a_torn_last_line_is_not_shown(tmp_path: Path) -> None:
    file = write(tmp_path / "raw_responses.jsonl", [record(0)], torn='{"id": "x' + "y" * 100_000)

    assert [each.id for each in spread([file], 1)] == [key(0)]


def test_a_file_that_has_only_a_torn_line_gives_no_sample(tmp_path: Path) -> None:
    assert spread([write(tmp_path / "raw_responses.jsonl", [], torn='{"id')], 2) == []
    assert spread([write(tmp_path / "raw_responses.jsonl", [])], 2) == []


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    file = tmp_path / "raw_responses.jsonl"
    file.write_text('{"id": 1}\n')

    with pytest.raises(CliError, match="no record"):
        spread([file], 1)


@given(
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    count=st.integers(1, 20),
    split=st.integers(0, 12),
)
def test_samples_are_distinct_and_never_more_than_asked(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], count: int, split: int
) -> None:
    folder = tmp_path_factory.mktemp("records")
    records = [record(number, "a" * length) for number, length in enumerate(lengths)]
    files = [
        write(folder / "raw_responses-0.jsonl", records[:split]),
        write(folder / "raw_responses-1.jsonl", records[split:]),
    ]

    chosen = [each.id for each in spread(files, count)]

    assert 1 <= len(chosen) <= count
    assert len(set(chosen)) == len(chosen)
