"""Which rows are trained on when."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.train.data import Prefetcher, Reading
from draftmill_jobs.train.packing import Schedule, is_held_out, pack, share_of
from tests.support.training import Rows

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=80)


def keys(lengths: list[int]) -> list[str]:
    return [f"d/{i}" for i in range(len(lengths))]


@given(LENGTHS, st.integers(1, 400), st.integers(0, 3))
def test_every_row_is_in_one_batch_and_no_batch_is_too_long_but_for_one_row(
    lengths: list[int], tokens: int, epoch: int
) -> None:
    batches = pack(keys(lengths), lengths, tokens=tokens, seed=1, epoch=epoch)

    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[row] for row in batch) <= tokens for batch in batches)


def test_batches_are_nearly_full() -> None:
    made = np.random.default_rng(0)
    lengths = made.integers(100, 300, 2_000).tolist()
    batches = pack(keys(lengths), lengths, tokens=4_096, seed=0, epoch=0)

    assert sum(lengths) / (4_096 * len(batches)) > 0.97


def test_an_order_is_the_same_always_and_another_in_each_epoch() -> None:
    lengths = [10] * 20
    first, again, next_epoch, other_seed = (
        pack(keys(lengths), lengths, tokens=10, seed=seed, epoch=epoch)
        for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))
    )

    assert first == again
    assert len({tuple(order) for order in (first, next_epoch, other_seed)}) == 3
    assert first[:4] == [(17,), (5,), (19,), (2,)]


def test_a_resume_in_the_middle_of_an_epoch_has_exactly_the_rows_that_were_left() -> None:
    """Reported failure 32 (speculators#295): after a resume rows were packed otherwise."""
    lengths = [10 + i for i in range(30)]
    uninterrupted, resumed = (
        Schedule.of(keys(lengths), lengths, tokens=64, seed=3, epochs=3) for _ in range(2)
    )
    done = 7
    before, after = uninterrupted.positions[:done], resumed.positions[done:]

    assert [uninterrupted.batch(at) for at in before] + [resumed.batch(at) for at in after] == [
        uninterrupted.batch(at) for at in uninterrupted.positions
    ]


@given(LENGTHS, st.integers(1, 8))
def test_ranks_share_a_batch_without_loss_and_about_equally(lengths: list[int], ranks: int) -> None:
    batch = tuple(range(len(lengths)))
    shares = [share_of(batch, lengths, rank=rank, ranks=ranks) for rank in range(ranks)]
    held = [sum(lengths[row] for row in share) for share in shares]

    assert sorted(row for share in shares for row in share) == list(batch)
    assert max(held) - min(held) <= max(lengths)


def test_rows_of_one_prompt_are_held_out_together_and_about_so_many() -> None:
    prompts = [f"prompt {i}" for i in range(4_000)]
    out = [is_held_out(prompt, 5) for prompt in prompts]

    assert out == [is_held_out(prompt, 5) for prompt in prompts]
    assert 0.04 < sum(out) / len(out) < 0.06
    assert not any(is_held_out(prompt, 0) for prompt in prompts)


def test_noise_moves_what_the_drafter_sees_by_a_bounded_amount_and_the_same_each_time() -> None:
    rows = Rows()
    plain, noisy, again = (Reading(rows, 3, (3, 16), noise).batch((1, 2), 0) for noise in (0.0, 0.05, 0.05))
    other_epoch = Reading(rows, 3, (3, 16), 0.05).batch((1, 2), 1)
    moved = (noisy.packed.states - plain.packed.states).abs()

    assert 0.04 < moved.max() <= 0.05001
    assert torch.equal(noisy.packed.states, again.packed.states)
    assert not torch.equal(noisy.packed.states, other_epoch.packed.states)
    assert torch.equal(noisy.packed.last, plain.packed.last)


def test_a_rank_without_rows_has_a_batch_with_noise_too() -> None:
    batch = Reading(Rows(corrupt=frozenset({2})), 3, (3, 16), noise=0.05).batch((2,), 0)

    assert batch.packed.states.shape == (0, 3, 16)
    assert batch.corrupt == (2,)


def test_batches_come_in_order_and_a_broken_row_is_named() -> None:
    reading = Reading(Rows(corrupt=frozenset({2})), 3, (3, 16))
    batches = list(Prefetcher(reading, [((1,), 0), ((2, 3), 0), ((2,), 0), ((), 0)]))

    assert [batch.rows for batch in batches] == [(1,), (3,), (), ()]
    assert [batch.corrupt for batch in batches] == [(), (2,), (2,), ()]
    assert [batch.tokens for batch in batches] == [17, 27, 0, 0]
