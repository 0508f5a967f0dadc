"""The index of a dataset's prompts: what a restart need not read again."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from draftmill_api.jobconfig import JobSource
from draftmill_api.v1alpha1.source import Fields, Filters
from draftmill_api.v1alpha1.synthrun import Compression, Sampling, Turns
from draftmill_jobs.prompts.index import INDEX_FILE, PromptIndex, load_index, read_prompts, write_index
from draftmill_jobs.prompts.reading import DatasetRows
from draftmill_jobs.shared.settings import DatasetSettings

ROWS: list[Any] = [
    {"prompt": "one"},
    {"prompt": "two"},
    {"nothing": 1},
    {"prompt": "one"},
    {"prompt": "three"},
]


@pytest.fixture
def settings(tmp_path: Path) -> DatasetSettings:
    write_source(tmp_path, ROWS)
    return DatasetSettings(
        name="A",
        source=JobSource.model_validate({"file": {"path": str(tmp_path / "prompts.jsonl")}}),
        fields=Fields(),
        filters=Filters(),
        shuffle_seed=None,
        folder=tmp_path,
        compression=Compression.NONE,
        turns=Turns.LAST_TURN,
        max_samples=None,
        max_tokens=None,
        sampling=Sampling(),
        chat_template_kwargs={},
    )


def write_source(folder: Path, rows: list[Any]) -> None:
    (folder / "prompts.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def never(*_: object) -> None:
    raise AssertionError("the source was read again")


def test_a_source_that_is_as_it_was_is_not_read_again(
    settings: DatasetSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_prompts(settings)
    write_index(settings.folder, read)
    known = load_index(settings.folder)
    assert known == read
    monkeypatch.setattr(DatasetRows, "__iter__", never)
    assert read_prompts(settings, [known]) is known
    alike = replace(settings, max_tokens=5, sampling=Sampling(samples_per_prompt=3), folder=Path("/other"))
    assert read_prompts(alike, [known]) is known


@pytest.mark.parametrize(
    "change",
    [
        {"max_samples": 2},
        {"chat_template_kwargs": {"thinking": True}},
        {"fields": Fields(prompt="prompt")},
        {"filters": Filters(min_characters=4)},
        {"shuffle_seed": 1},
    ],
)
def test_what_may_change_a_prompt_has_the_source_read_again(
    settings: DatasetSettings, change: dict[str, Any]
) -> None:
    known = read_prompts(settings)
    assert read_prompts(replace(settings, **change), [known]) != known


def test_a_source_that_was_changed_is_read_again(settings: DatasetSettings) -> None:
    known = read_prompts(settings)
    write_source(settings.folder, [*ROWS, {"prompt": "four"}])
    now = read_prompts(settings, [known])
    assert (known.rows, now.rows) == (5, 6)
    assert known.fingerprint != now.fingerprint
    write_source(settings.folder, [*reversed(ROWS), *ROWS])
    assert read_prompts(settings, [known]).fingerprint == known.fingerprint, "order is no matter"


def test_rows_are_found_again_at_their_places(settings: DatasetSettings) -> None:
    prompts = read_prompts(settings)
    wanted = prompts.places_of(np.array([False, True, True, False, True]))
    assert wanted == array("Q", [1, 2, 4])
    rows = list(DatasetRows(settings).read(wanted))
    assert [row.position for row in rows] == [1, 2, 4]
    assert b"".join(bytes.fromhex(row.key) for row in rows) == b"".join(
        prompts.keys[16 * place : 16 * place + 16] for place in (1, 2, 4)
    )
    assert prompts.places_of(np.ones(5, bool)) is None


def test_rows_of_a_shuffled_source_are_found_again_in_their_order(settings: DatasetSettings) -> None:
    shuffled = replace(settings, shuffle_seed=1)
    prompts = read_prompts(shuffled)
    assert sorted(prompts.places) == [0, 1, 2, 3, 4]
    assert list(prompts.places) != [0, 1, 2, 3, 4]
    wanted = prompts.places_of(np.array([False, True, True, False, True]))
    assert wanted == array("Q", sorted(prompts.places[row] for row in (1, 2, 4)))
    rows = list(DatasetRows(shuffled).read(wanted))
    assert [row.position for row in rows] == [prompts.places[row] for row in (1, 2, 4)]


def test_what_was_filtered_is_known_without_reading_again(settings: DatasetSettings) -> None:
    filtered = replace(settings, filters=Filters(min_characters=4))
    write_index(settings.folder, read_prompts(filtered))
    known = load_index(settings.folder)
    assert known is not None
    assert (known.rows, known.filtered, list(known.places)) == (2, 3, [2, 4])


BROKEN = {
    "missing": None,
    "empty": b"",
    "no header": b"\0" * 100,
    "cut": -1,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_an_index_that_is_not_whole_is_none(settings: DatasetSettings, broken: bytes | int | None) -> None:
    write_index(settings.folder, read_prompts(settings))
    path = settings.folder / INDEX_FILE
    match broken:
        case None:
            path.unlink()
        case int():
            path.write_bytes(path.read_bytes()[:broken])
        case _:
            path.write_bytes(broken)
    assert load_index(settings.folder) is None


def test_an_empty_source_has_an_index(settings: DatasetSettings) -> None:
    write_source(settings.folder, [])
    assert read_prompts(settings) == PromptIndex(read_prompts(settings).origin, b"", array("Q"))
