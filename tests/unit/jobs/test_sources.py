"""Files and datasets as sources of rows; their identities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.jobconfig import JobSource
from draftmill_api.record import prompt_key, row_id
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.prompts.rows import owns, read_rows
from draftmill_jobs.prompts.sources import open_source
from draftmill_jobs.shared.settings import DatasetSettings, Share

ROWS: list[dict[str, Any]] = [{"prompt": f"question {i}"} for i in range(7)]


def settings(source: JobSource, folder: Path, max_samples: int | None = None) -> DatasetSettings:
    from draftmill_api.v1alpha1.synthrun import Compression, Sampling

    return DatasetSettings(
        name="A",
        source=source,
        folder=folder,
        compression=Compression.NONE,
        max_samples=max_samples,
        max_tokens=None,
        sampling=Sampling(samples_per_prompt=2),
        chat_template_kwargs={},
    )


def write(path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    match path.suffix:
        case ".jsonl":
            path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
        case ".json" if path.stem == "array":
            path.write_text("  \n" + json.dumps(ROWS, indent=1))
        case ".json":
            path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        case _:
            parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "array.json", "lines.json", "rows.parquet"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    source = JobSource.model_validate({"file": {"path": str(write(tmp_path / name))}})
    opened = open_source(source)
    assert list(opened.rows()) == list(opened.rows()) == ROWS
    dataset = settings(source, tmp_path, max_samples=5)
    rows = list(read_rows(dataset))
    assert [row.position for row in rows] == [0, 1, 2, 3, 4]
    assert [row.key for row in rows] == [
        prompt_key([{"role": "user", "content": row["prompt"]}], None, {}) for row in ROWS[:5]
    ]


def test_a_local_copy_of_a_hub_dataset_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "org" / "chats"
    folder.mkdir(parents=True)
    write(folder / "train.jsonl")
    source = JobSource.model_validate({"huggingFace": {"repo": str(folder), "split": "train"}})
    opened = open_source(source)
    assert [row["prompt"] for row in opened.rows()] == [row["prompt"] for row in ROWS]


REFUSALS = {
    "missing": ("none.jsonl", "PromptsNotFound", "no file of prompts at"),
    "kind": ("rows.csv", "PromptsUnreadable", "use a .jsonl, .json or .parquet file"),
    "not parquet": ("bad.parquet", "PromptsUnreadable", "is not Parquet"),
    "not json": ("bad.json", "PromptsUnreadable", "is not JSON"),
}


@pytest.mark.parametrize(("name", "reason", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_source_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, reason: str, message: str
) -> None:
    if name != "none.jsonl":
        (tmp_path / name).write_text("[{]")
    with pytest.raises(JobRefusedError, match=message) as refused:
        open_source(JobSource.model_validate({"file": {"path": str(tmp_path / name)}}))
    assert refused.value.reason == reason


def test_equal_prompts_have_equal_keys_whatever_the_order_of_their_fields() -> None:
    one = prompt_key([{"role": "user", "content": "é"}], None, {"a": 1, "b": 2})
    two = prompt_key([{"content": "é", "role": "user"}], None, {"b": 2, "a": 1})
    assert one == two
    assert one != prompt_key([{"role": "user", "content": "é"}], None, {})


KEYS = st.binary(min_size=16, max_size=16).map(bytes.hex)


@given(KEYS, st.integers(0, 3), st.integers(1, 7))
def test_every_row_is_exactly_one_workers(key: str, sample: int, workers: int) -> None:
    owners = [index for index in range(workers) if owns(Share(index, workers), row_id(key, sample))]
    assert len(owners) == 1
