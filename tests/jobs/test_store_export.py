"""Exports for other trainers, whose readers want exactly these files and tensors."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional

from draftmill_jobs.store import Check, Store
from draftmill_jobs.store.export import export_to_specforge
from tests.support.states import HIDDEN, row, written


def test_an_export_for_specforge_has_the_last_state_after_the_final_norm(tmp_path: Path) -> None:
    written(tmp_path / "store", [row(number) for number in range(5)])
    weight = torch.linspace(0.5, 2, HIDDEN)

    def final_norm(last: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(last.float(), (HIDDEN,), weight, 1e-5).to(last.dtype)

    with Store.open(tmp_path / "store", check=Check.HASHES) as store:
        export_to_specforge(store, tmp_path / "export", final_norm)

        for index, each in enumerate(store):
            path = tmp_path / "export" / "rows_0-2000" / f"data_{index}.ckpt"
            found = torch.load(path, weights_only=True)
            states, tokens = each.states(), each.line.tokens
            assert set(found) == {"input_ids", "loss_mask", "hidden_state", "aux_hidden_state"}
            assert found["input_ids"].tolist() == each.token_ids.tolist()
            assert found["loss_mask"].tolist() == each.loss_mask.tolist()
            assert found["aux_hidden_state"].shape == (1, tokens, 3 * HIDDEN)
            assert torch.equal(found["aux_hidden_state"][0].view(tokens, 3, HIDDEN), states[:, :3])
            assert torch.equal(found["hidden_state"], final_norm(states[:, 3])[None])
            assert path.stat().st_size < 2 * states.nbytes + 20_000  # not the whole map behind the tensors
