"""The unrolled step against the plain loop, its masks, and packing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.naive_ttt import naive_losses

from draftmill_jobs.train import attention as module
from draftmill_jobs.train.attention import TttAttention, block_attention, plain_attention
from draftmill_jobs.train.flex import flex_ttt_attention
from draftmill_jobs.train.step import step_weights
from tests.support.drafting import Bench, Row, make_bench, random_row, small_config

STEPS = 3


@pytest.fixture
def bench() -> Bench:
    return make_bench()


def rows_of_many_shapes(bench: Bench) -> list[Row]:
    """Long, short and no prompts, no answer, several turns, more queries than a block."""
    answers = [(30, range(12, 30)), (9, range(1, 9)), (7, range(0)), (12, range(12)), (300, range(40, 290))]
    rows = [random_row(bench.config, length, answer, seed=i) for i, (length, answer) in enumerate(answers)]
    turns = random_row(bench.config, 40, range(10, 20), seed=9)
    turns.mask[30:] = True
    return [*rows, turns]


@pytest.mark.parametrize(
    ("attention", "kept"),
    [(block_attention, 1 << 24), (block_attention, 0), (plain_attention, 0)],
    ids=["blocks", "blocks formed anew", "definition"],
)
def test_losses_and_gradients_are_those_of_the_plain_loop(
    attention: TttAttention, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT_ELEMENTS", kept)
    bench = make_bench(attention=attention)
    rows = rows_of_many_shapes(bench)
    weights = dict(bench.drafter.named_parameters())

    loss = bench.loss(rows, STEPS, decay=0.8)
    found = torch.autograd.grad(loss, list(weights.values()))
    plain = sum(
        0.8**k * mean for k, mean in enumerate(naive_losses(weights, *bench.naive(rows), steps=STEPS))
    )
    assert isinstance(plain, torch.Tensor)
    expected = torch.autograd.grad(plain, list(weights.values()))

    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    for name, mine, theirs in zip(weights, found, expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-8), name


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_attention_for_gpus_mixes_as_the_definition_does(bench: Bench) -> None:
    """Uncompiled, and forward only: it has no gradient on CPUs."""
    flex = make_bench(dtype=torch.float32, attention=flex_ttt_attention)
    plain = make_bench(dtype=torch.float32, attention=plain_attention)
    rows = [row.in_float32() for row in rows_of_many_shapes(bench)[:2]]

    with torch.no_grad():
        assert flex.mean_losses(rows, STEPS) == pytest.approx(plain.mean_losses(rows, STEPS), rel=1e-4)


def test_a_batch_in_which_nothing_is_scored_has_no_loss_on_gpus_either() -> None:
    """A rank's part of a small batch may have no rows at all, or none of an answer."""
    bench = make_bench(dtype=torch.float32, attention=flex_ttt_attention)
    loss = bench.loss([random_row(bench.config, 7, range(0), seed=1).in_float32()], STEPS)
    loss.backward()

    assert loss.item() == 0
    assert not any(x.grad.any() for x in bench.drafter.parameters() if x.grad is not None)


def test_the_loss_in_float32_is_that_in_float64(bench: Bench) -> None:
    """Reported failure 35 (speculators#788): a loss in bfloat16 had gradients that were off by up to 19 %."""
    narrow = make_bench(dtype=torch.float32)
    rows = rows_of_many_shapes(bench)

    assert narrow.mean_losses([row.in_float32() for row in rows], STEPS) == pytest.approx(
        bench.mean_losses(rows, STEPS), abs=1e-5
    )


@pytest.mark.parametrize(("step", "positions"), [(0, [4, 5, 6, 7]), (1, [3, 4, 5, 6]), (2, [2, 3, 4, 5])])
def test_exactly_the_positions_between_two_answer_tokens_are_scored(
    bench: Bench, step: int, positions: list[int]
) -> None:
    """Reported failure 19 (SpecForge#885): the loss mask was one position off.

    Of twelve tokens 5..9 are the answer; a token counts when it and the one before are in it.
    """
    row = random_row(bench.config, 12, range(5, 10), seed=1)
    batch, layout = bench.pack([row], STEPS)
    weights = [float(step == k) for k in range(STEPS)]
    outputs: list[torch.Tensor] = []
    unroll = bench.drafter.unroll

    def spied(*arguments: object) -> object:
        for output in unroll(*arguments):  # type: ignore[arg-type]
            output.retain_grad()
            outputs.append(output)
            yield output

    bench.drafter.unroll = spied  # type: ignore[method-assign, assignment]
    bench.unroller(batch, layout, weights).loss.backward()
    gradient = outputs[step].grad

    assert gradient is not None
    assert layout.query_positions.index[gradient.abs().sum(-1) > 0].tolist() == positions


def test_packed_documents_do_not_see_each_other(bench: Bench) -> None:
    """Reported failure 26 (speculators#621): packed rows saw each other."""
    first, other = (random_row(bench.config, 20, range(8, 20), seed=seed) for seed in (1, 2))
    second = random_row(bench.config, 25, range(6, 25), seed=3)

    def outputs(rows: list[Row]) -> list[torch.Tensor]:
        batch, layout = bench.pack(rows, STEPS)
        made = bench.drafter.unroll(batch, layout, bench.unroller.attention, bench.unroller.tables)
        behind = layout.teacher_positions.index >= 20
        return [output[scored.rows.index][behind] for output, scored in zip(made, layout.scored, strict=True)]

    for mine, theirs in zip(outputs([first, second]), outputs([other, second]), strict=True):
        assert torch.equal(mine, theirs)


def test_a_packed_batch_loses_as_much_as_its_rows_one_by_one(bench: Bench) -> None:
    rows = rows_of_many_shapes(bench)
    counts = [len(scored) for scored in bench.pack(rows, STEPS)[1].scored]
    alone = np.array([bench.mean_losses([row], STEPS) for row in rows])
    shares = np.array([[len(s) for s in bench.pack([row], STEPS)[1].scored] for row in rows]) / counts

    assert bench.mean_losses(rows, STEPS) == pytest.approx((alone * shares).sum(0).tolist(), rel=1e-9)


def test_packed_rows_have_the_gradients_that_each_has_alone(bench: Bench) -> None:
    """In their own states: nothing comes back from what is seen or scored in another document."""
    rows = [row for row in rows_of_many_shapes(bench) if row.mask.any()]
    weights = step_weights([len(scored) for scored in bench.pack(rows, STEPS)[1].scored], 0.8)

    def gradient(packed: list[Row]) -> torch.Tensor:
        batch, layout = bench.pack(packed, STEPS)
        loss = bench.unroller(replace(batch, states=batch.states.requires_grad_()), layout, weights).loss
        return torch.autograd.grad(loss, batch.states)[0]

    alone = torch.cat([gradient([row]) for row in rows])
    assert alone.abs().max() > 0
    assert torch.allclose(gradient(rows), alone, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("pad_left", [True, False], ids=["left", "right"])
def test_padding_on_either_side_changes_neither_loss_nor_gradient(bench: Bench, pad_left: bool) -> None:
    """Reported failure 23 (NeMo Automodel#2314): rows that were padded on the left were masked wrongly.

    There is no padding in a packed batch; the plain loop has it, on either side, and agrees.
    """
    rows = [
        random_row(bench.config, 20, range(8, 20), seed=1),
        random_row(bench.config, 31, range(10, 28), seed=2),
    ]
    weights = dict(bench.drafter.named_parameters())
    padded = naive_losses(weights, *bench.naive(rows, pad_left=pad_left), steps=STEPS)
    expected = torch.autograd.grad(torch.stack(padded).sum(), list(weights.values()))
    found = torch.autograd.grad(bench.loss(rows, STEPS), list(weights.values()))

    assert bench.mean_losses(rows, STEPS) == pytest.approx([loss.item() for loss in padded], rel=1e-6)
    for name, mine, theirs in zip(weights, found, expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-8), name


@pytest.mark.parametrize("option", ["fc_norm", "norm_before_fc", "norm_output"])
def test_each_option_changes_what_is_computed_and_is_trained(option: str) -> None:
    plain = make_bench()
    changed = make_bench(small_config(**{option: True}))
    row = random_row(plain.config, 20, range(8, 20), seed=1)
    shared = dict(plain.drafter.named_parameters())
    with torch.no_grad():
        for name, parameter in changed.drafter.named_parameters():
            if name in shared:
                parameter.copy_(shared[name])

    changed.loss([row], STEPS).backward()

    assert changed.mean_losses([row], STEPS) != pytest.approx(plain.mean_losses([row], STEPS), rel=1e-6)
    assert all(parameter.grad is not None for parameter in changed.drafter.parameters())
