"""What all rows of a store have in common: something else is refused, and the store stays as it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.store import ComputedIn, LayerConvention, StoreBinding
from draftmill_api.v1alpha1.extractrun import Backend
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.store import audit_store, write_index
from tests.support.states import binding, row, writer, written

ROWS = [row(0)]
ANOTHER: dict[str, tuple[Any, str]] = {
    "model_fingerprint": ("e" * 64, f"another modelFingerprint: {'f' * 64} there, {'e' * 64} now"),
    "layer_ids": ([1, 3, 5, 8], "another layerIds: [2, 3, 5, 8] there, [1, 3, 5, 8] now"),
    "hidden_size": (64, "another hiddenSize: 32 there, 64 now"),
    "dtype": ("Float8", "another dtype: BFloat16 there, Float8 now"),
    "max_row_tokens": (100, "another maxRowTokens: None there, 100 now"),
    "on_long_row": ("Skip", "another onLongRow: Cut there, Skip now"),
    "backend": ("Transformers", "another backend: VLLM there, Transformers now"),
}
"""Another value of each part of a binding, and how it is refused."""


@pytest.mark.parametrize("part", ANOTHER)
def test_a_store_that_is_bound_to_something_else_is_refused_with_both_values(
    tmp_path: Path, part: str
) -> None:
    value, sentence = ANOTHER[part]
    written(tmp_path, ROWS)
    before = _content(tmp_path)

    with pytest.raises(JobRefusedError) as refused:
        writer(tmp_path, binding=binding(**{part: value}))

    assert refused.value.reason == "StoreDiffers"
    assert sentence in refused.value.message
    assert _content(tmp_path) == before


def test_of_several_differences_the_gravest_is_named_each_time(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    with pytest.raises(JobRefusedError, match="another modelFingerprint"):
        writer(tmp_path, binding=binding(**{part: value for part, (value, _) in ANOTHER.items()}))


def test_every_part_of_a_binding_that_can_be_another_is_looked_at() -> None:
    assert {*ANOTHER, "layer_convention"} == set(StoreBinding.model_fields)
    assert len(LayerConvention) == 1


def test_a_store_that_does_not_say_how_it_was_computed_is_gone_on_with(tmp_path: Path) -> None:
    """As one that was written before this was noted."""
    with writer(tmp_path, shard_bytes=1) as store:
        for each in (row(0), row(1)):
            store.append(each, _nothing)
        store.flush()
    for path, key in (("store.json", "backend"), ("index-w0.jsonl", "computed_in")):
        _leave_out(tmp_path / path, key)
    for journal in tmp_path.glob("*.journal"):
        _leave_out(journal, "computed_in")

    written(tmp_path, [row(2)])

    write_index(tmp_path)
    audit = audit_store(tmp_path)
    assert (audit.faults, len(audit.rows), audit.computed_in) == ([], 3, {ComputedIn.BFLOAT16: 1})
    with pytest.raises(JobRefusedError, match="another backend: VLLM there"):
        writer(tmp_path, binding=binding(backend=Backend.TRANSFORMERS))


def test_a_row_of_the_same_name_for_other_tokens_is_refused(tmp_path: Path) -> None:
    written(tmp_path, ROWS)

    with (
        writer(tmp_path) as store,
        pytest.raises(JobRefusedError, match=f"row B1/{ROWS[0].facts.id} for other"),
    ):
        store.holds(ROWS[0].facts.key, ROWS[0].token_ids + 1)


def _leave_out(path: Path, key: str) -> None:
    """Takes a key and its text out of a file of JSON."""
    found, without = path.read_text(), re.sub(rf',\s*"{key}":\s*"[^"]*"', "", path.read_text())
    assert found != without
    path.write_text(without)


def _nothing() -> None:
    """Nobody waits."""


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
