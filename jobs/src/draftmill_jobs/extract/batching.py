"""Rows of like length, put together. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from draftmill_jobs.extract.records import Row


def batches(rows: Iterator[Row], tokens: int) -> Iterator[list[Row]]:
    """Groups rows, which come longest first, so that each group has at most so many tokens with its padding.

    A row that is longer goes alone.
    """
    batch: list[Row] = []
    for row in rows:
        if batch and batch[0].tokens * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
