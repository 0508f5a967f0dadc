"""Reading a run's output folder as any user would: line by line, with nothing of ours but json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(folder: Path, pattern: str = "raw_responses*.jsonl") -> Iterator[dict[str, Any]]:
    """Each record of an output folder; a line that is no JSON fails the test."""
    for file in sorted(folder.glob(f"*/{pattern}")):
        content = file.read_text()
        assert content == "" or content.endswith("\n"), f"{file} ends in a torn line"
        yield from map(json.loads, content.splitlines())


def assert_complete(folder: Path, rows: dict[str, int]) -> list[dict[str, Any]]:
    """Checks that each row is there exactly once with counts that match its ids, and returns the records.

    Args:
        folder: Output folder of the run.
        rows: Number of distinct rows by dataset.
    """
    records = list(lines(folder))
    keys = [(each["dataset"], each["id"]) for each in records]
    assert len(keys) == len(set(keys)), "a row was written twice"
    counts = {name: sum(dataset == name for dataset, _ in keys) for name in rows}
    assert counts == rows
    for each in records:
        assert each["completion_tokens"] == len(each["output_ids"]) > 0
        assert each["prompt_tokens"] == len(each["prompt_ids"]) > 0
    return records
