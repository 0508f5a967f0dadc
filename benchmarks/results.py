"""A benchmark's table: what was measured, what it must be, and whether it is."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias


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


Bench: TypeAlias = Callable[[Path, float], Result]
"""Measures one line, given an empty folder and the share of the work to do."""


def arguments(description: str | None, benches: Sequence[Bench]) -> argparse.ArgumentParser:
    """What every benchmark of several lines is asked."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work to do")
    parser.add_argument("--only", choices=[bench.__name__ for bench in benches], help="one line of the table")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    return parser


def measure(benches: Sequence[Bench], chosen: argparse.Namespace, folder: Path | None = None) -> int:
    """Measures and prints the lines that were asked for; 1 when a figure is missed.

    Args:
        benches: All lines.
        chosen: As `arguments` parsed it.
        folder: Where each line's own folder is made; the default's for temporary files.
    """
    results = list[Result]()
    for bench in benches:
        if chosen.only in (None, bench.__name__):
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                results.append(bench(Path(temporary), chosen.scale))
            show(results[-1], header=len(results) == 1)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(result) for result in results], indent=2))
    return 0 if all(result.met for result in results) else 1
