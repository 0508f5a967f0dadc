"""The reference page names everything that a store's files hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from draftmill_api.extractjob import ExtractSummary, QuarantinedRow
from draftmill_api.store import StoreBinding, StoreFolder, StoreLine, StoreManifest
from draftmill_jobs.extract.remedies import REMEDIES
from draftmill_jobs.store import RowFault

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "store.md").read_text()


@pytest.mark.parametrize(
    ("heading", "table", "keys"),
    [
        ("A line of the index", "key", StoreLine),
        ("manifest.json", "key", StoreManifest),
        ("store.json", "key", StoreFolder),
        ("store.json", "key of `binding`", StoreBinding),
        ("The quarantine", "key", QuarantinedRow),
    ],
)
def test_every_key_of_a_file_is_explained_in_the_order_of_the_file(
    heading: str, table: str, keys: type[BaseModel]
) -> None:
    assert first_cells(heading, table) == names(keys)


def test_every_key_of_the_summary_is_named() -> None:
    assert [key for key in names(ExtractSummary) if f"`{key}`" not in section("manifest.json")] == []


def test_every_reason_of_the_quarantine_is_explained() -> None:
    assert sorted(first_cells("The quarantine", "reason")) == sorted(REMEDIES)


def test_every_fault_of_a_row_is_named_where_it_is_said_what_is_refused() -> None:
    assert [fault for fault in RowFault if f"`{fault.value}`" not in section("What is refused")] == []


def section(heading: str) -> str:
    """The part of the page below a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def first_cells(heading: str, first_column: str) -> list[str]:
    """What stands in code in the first column of a table, which is found by the head of that."""
    rows = section(heading).split(f"| {first_column} |")[1].split("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in row.split("|")[1].replace("`", "").strip().split(", ")]


def names(keys: type[BaseModel]) -> list[str]:
    """The keys as they stand in a file."""
    return [field.alias or name for name, field in keys.model_fields.items()]
