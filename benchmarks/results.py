"""A benchmark's table: what was measured, what it must be, and whether it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    what: str
    measured: str
    must: str
    met: bool


def show(result: Result, *, header: bool) -> None:
    """Prints a line of the table."""
    if header:
        print(f"{'what':<10}{'measured':<100}{'must':<14}met")
    print(
        f"{result.what:<10}{result.measured:<100}{result.must:<14}{'yes' if result.met else 'NO'}", flush=True
    )
