"""A worker that fills a store with the rows of `states.row`, as a program to be killed.

It prints `held <n>` for a row that is there, `asked <n>` before it appends one, and `durable <n>` once that
will survive a crash.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

from draftmill_jobs.shared.settings import Share
from tests.support.states import row, writer


def say(word: str, number: int) -> None:
    """Prints a line at once and whole: buffers die with their process, and two threads print."""
    os.write(1, f"{word} {number}\n".encode())


def main() -> None:
    """Writes the worker's rows that are not there, and seals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--worker", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    chosen = parser.parse_args()
    share = Share(chosen.worker, chosen.workers)
    with writer(chosen.folder, share=share, group_bytes=10_000, group_seconds=0.02) as store:
        for number in range(chosen.worker, chosen.rows, chosen.workers):
            each = row(number)
            if store.holds(each.facts.key, each.token_ids):
                say("held", number)
            else:
                say("asked", number)
                store.append(each, partial(say, "durable", number))
        store.seal()


if __name__ == "__main__":
    main()
