"""Workers of a store, killed at random instants and started again until all rows are there."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from draftmill_jobs.store import Check, Store, audit_store
from tests.support.states import row
from tests.support.waiting import quiet_for

_REPOSITORY = Path(__file__).resolve().parents[2]
_LONGEST_WAIT = 0.05  # seconds from a sign of progress to the blow


def fill_through_kills(folder: Path, *, rows: int, workers: int, kills: int, seed: int) -> None:
    """Every row is there once and whole, and none that was durable was ever asked for again."""
    rng = random.Random(seed)
    durable: set[int] = set()
    for _ in range(kills):
        victims = [_start(folder, rows, worker, workers) for worker in range(workers)]
        said = _kill_at_random(victims, rng)
        _account(said, durable)
    for worker in range(workers):
        process = _start(folder, rows, worker, workers)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        _account(output.splitlines(), durable)
    assert durable == set(range(rows))
    assert audit_store(folder).faults == []
    with Store.open(folder, check=Check.HASHES) as store:
        assert sorted(each.line.id for each in store) == sorted(row(n).facts.id for n in range(rows))
    assert [path.name for path in folder.iterdir() if path.suffix in {".partial", ".journal"}] == []


def _start(folder: Path, rows: int, worker: int, workers: int) -> subprocess.Popen[str]:
    share = ["--worker", str(worker), "--workers", str(workers)]
    command = [sys.executable, "-m", "tests.support.store_writer", str(folder), "--rows", str(rows), *share]
    return subprocess.Popen(command, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True)


def _kill_at_random(victims: Sequence[subprocess.Popen[str]], rng: random.Random) -> list[str]:
    """Kills the processes some lines after their start, and returns all that they said."""
    said: list[str] = []
    for victim in victims:
        assert victim.stdout is not None
        said += [victim.stdout.readline() for _ in range(rng.randint(0, 12))]
    quiet_for(rng.uniform(0, _LONGEST_WAIT))
    for victim in victims:
        victim.kill()
    for victim in victims:
        rest, _ = victim.communicate()
        said += rest.splitlines()
    return said


def _account(said: Sequence[str], durable: set[int]) -> None:
    by_word: dict[str, set[int]] = {"asked": set(), "held": set(), "durable": set()}
    for word, number in (line.split() for line in said if line.strip()):
        by_word[word].add(int(number))
    assert by_word["asked"] & durable == set(), "a durable row was lost"
    durable |= by_word["held"] | by_word["durable"]
