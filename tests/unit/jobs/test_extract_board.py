"""What an extractor says of its progress."""

from __future__ import annotations

from draftmill_api.progress import WorkerState
from draftmill_jobs.extract.board import Board


def board() -> Board:
    made = Board(run_uid="uid", worker="0/1", attempt=2, started=0.0, config_hash="hash", total=4)
    made.total_tokens = 4000
    made.state = WorkerState.RUNNING
    return made


def test_the_rate_counts_tokens_of_this_start_alone() -> None:
    now = board()
    now.stored(1000, 10_000)  # found in the store
    now.sample(100.0)
    now.stored(1000, 10_000)

    progress = now.extract_progress(110.0)

    assert (progress.rows, progress.tokens, progress.size) == (2, 2000, "20.0 kB")
    assert (progress.tokens_per_second, progress.eta) == (100, "20s")


def test_nothing_is_promised_while_it_does_not_run() -> None:
    now = board()
    now.sample(0.0)
    now.stored(1000, 10_000)
    now.state = WorkerState.DRAINING

    progress = now.extract_progress(10.0)

    assert (progress.tokens_per_second, progress.eta) == (None, "")


def test_rows_in_store_and_quarantine_make_it_complete() -> None:
    now = board()
    for _ in range(3):
        now.stored(1, 1)
    assert not now.is_complete

    now.quarantined = 1

    assert now.is_complete
