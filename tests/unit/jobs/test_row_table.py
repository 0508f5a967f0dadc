"""The table of a dataset's rows: what is asked for, what is settled, what is left for a worker."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.record import row_id
from draftmill_jobs.prompts.rows import owns
from draftmill_jobs.prompts.table import RowTable, Settling
from draftmill_jobs.shared.settings import Share

ALL = Share(0, 1)
KEYS = st.binary(min_size=16, max_size=16) | st.sampled_from(
    [bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\xff" * 16]
)
ROWS = st.lists(KEYS, max_size=30).flatmap(
    lambda keys: st.tuples(st.just(keys), st.lists(st.sampled_from(keys) if keys else KEYS, max_size=20))
)
"""Keys of a source, some of them several times."""


def table_of(keys: list[bytes], samples: int) -> RowTable:
    return RowTable(b"".join(keys), samples)


@given(ROWS, st.integers(1, 3), st.lists(st.tuples(KEYS, st.integers(0, 4)), max_size=10), st.data())
def test_a_row_is_settled_once_and_strangers_are_told_apart(
    rows: tuple[list[bytes], list[bytes]],
    samples: int,
    others: list[tuple[bytes, int]],
    data: st.DataObject,
) -> None:
    keys = [*rows[0], *rows[1]]
    table, settled = table_of(keys, samples), set[str]()
    known = list(product(keys, range(samples)))
    for key, sample in [*data.draw(st.permutations(known[:12] * 2)), *others]:
        identity = row_id(key.hex(), sample)
        is_asked_for = key in keys and sample < samples
        assert table.has_prompt(key) is (key in keys)
        assert table.asks_for(identity) is is_asked_for
        if not is_asked_for:
            assert table.settle(identity) is Settling.STRANGER
        else:
            assert table.settle(identity) is (Settling.AGAIN if identity in settled else Settling.FIRST)
            settled.add(identity)
    missing, example = table.unsettled()
    left = {row_id(key.hex(), sample) for key, sample in known} - settled
    assert missing == len(left)
    assert example in left or (example, left) == ("", set())


@given(ROWS, st.integers(1, 3), st.integers(1, 3), st.data())
def test_the_workers_rows_are_all_rows_and_the_first_of_each_prompt_is_asked(
    rows: tuple[list[bytes], list[bytes]], samples: int, workers: int, data: st.DataObject
) -> None:
    keys = [*rows[0], *rows[1]]
    table = table_of(keys, samples)
    settled = set(data.draw(st.lists(st.sampled_from(keys), max_size=10)) if keys else [])
    for key in settled:
        table.settle(row_id(key.hex(), 0))
    shares = [Share(index, workers) for index in range(workers)]
    assert sum(table.total(share) for share in shares) == table.total(ALL) == len(keys) * samples
    repeated = (len(keys) - len(set(keys))) * samples
    assert sum(table.repeated(share) for share in shares) == table.repeated(ALL) == repeated
    for share in shares:
        is_open = table.open_rows(share).tolist()
        for row, key in enumerate(keys):
            unsettled = range(1 if key in settled else 0, samples)
            left = list(unsettled) if owns(share, key.hex()) else []
            assert table.open_samples(key.hex(), share) == left
            assert is_open[row] is (bool(left) and key not in keys[:row])
