"""Every hidden state of a Llama of four layers: vLLM on CPU in float32 against the transformers library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from draftmill_dev import model
from draftmill_jobs.errors import JobRefusedError
from tests.support.extract_job import ExtractJob
from tests.support.hidden_states_server import by_server, run, serving
from tests.support.tiny_llama import CONTEXT_LENGTH, LAYERS, make_tiny_llama

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

LARGEST_ERROR = 1e-4  # relative L2 of a (token, layer); 5.4e-5 measured
ROWS, LONGEST = 30, 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("llama") / "tiny", hidden=128)


def test_each_id_of_a_server_is_the_librarys_hidden_state_of_that_number(
    folder: Path, tmp_path: Path
) -> None:
    ids = list(range(LAYERS))
    with serving(
        folder,
        tmp_path,
        dtype="float32",
        layer_ids=[*ids, LAYERS],
        flags=["--max-model-len", str(CONTEXT_LENGTH)],
    ) as server:
        job = job_of(tmp_path / "job", folder, ids, **by_server(server))
        run(job)

    library: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    library.eval()
    worst = np.zeros(LAYERS + 1)
    with job.store() as store, torch.inference_mode():
        assert (len(store), store.binding.layer_ids) == (ROWS, [*ids, LAYERS])
        for row in store:
            states = row.values().copy()
            tokens = torch.from_numpy(row.token_ids.astype(np.int64))[None]
            answer = library(tokens, output_hidden_states=True, use_cache=False)
            expected = [each[0].numpy() for each in answer.hidden_states]
            states[:, LAYERS] = library.model.norm(torch.from_numpy(states[:, LAYERS])).numpy()
            worst = np.maximum(worst, [error(states[:, k], expected[k]) for k in range(LAYERS + 1)])
    print(f"worst relative L2 of a token, by id: {worst}")
    assert worst.max() <= LARGEST_ERROR


async def test_a_server_whose_last_state_is_the_one_before_the_last_layer_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    with serving(
        folder,
        tmp_path,
        dtype="float32",
        layer_ids=[0, 1, 2, LAYERS - 1],
        flags=["--max-model-len", str(CONTEXT_LENGTH)],
    ) as server:
        job = job_of(tmp_path / "job", folder, [0, 1, 2], **by_server(server))
        with pytest.raises(JobRefusedError) as refused:
            await job.extract(within=600.0)

    assert refused.value.reason == "PreflightFailed"
    assert "the last state, through final norm and output head" in refused.value.message


def job_of(place: Path, folder: Path, ids: list[int], **fields: Any) -> ExtractJob:
    """Rows of random tokens, for these layers and the last state."""
    made = ExtractJob(place, folder).add_many(ROWS, longest=LONGEST)
    made.fields |= {"model": {"name": model.NAME, "path": str(folder)}, "layers": {"ids": ids}, **fields}
    return made


def error(states: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Relative L2 of the worst token."""
    return float((np.linalg.norm(states - expected, axis=-1) / np.linalg.norm(expected, axis=-1)).max())
