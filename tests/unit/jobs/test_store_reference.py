"""The reference page names everything that a store's files hold."""

from __future__ import annotations

from pathlib import Path

from draftmill_api.store import StoreLine
from draftmill_jobs.store import RowFault

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "store.md").read_text()


def test_every_key_of_the_index_is_explained_in_the_order_of_the_file() -> None:
    table = PAGE.split("## A line of the index")[1].split("## What is refused")[0]

    keys = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]

    assert keys == list(StoreLine.model_fields)


def test_every_fault_of_a_row_is_named() -> None:
    assert [fault for fault in RowFault if f"`{fault.value}`" not in PAGE] == []
