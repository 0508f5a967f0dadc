"""Hidden states of a real model: vLLM on CPU in float32 against the transformers library.

The server computes few tokens at a time, so that most rows take it several steps, as rows of many thousand
tokens do on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from draftmill_dev import model
from draftmill_jobs.store.values import to_bfloat16
from tests.support.hidden_states_server import (
    HiddenStatesServer,
    States,
    by_server,
    job_of,
    run,
    serving,
    worst_error,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

LAYER_IDS = [2, 15, 27, 30]
STEP = 64  # tokens
IN_STEPS = ["--enable-chunked-prefill", f"--max-num-batched-tokens={STEP}"]
LARGEST_ERROR = 1e-4  # relative L2 of a (token, layer); 1.3e-5 measured


@pytest.fixture(scope="module")
def folder() -> Path:
    return model.build() / model.NAME


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiddenStatesServer]:
    place = tmp_path_factory.mktemp("server")
    with serving(folder, place, dtype="float32", layer_ids=LAYER_IDS, flags=IN_STEPS) as server:
        yield server


@pytest.fixture(scope="module")
def in_float32(server: HiddenStatesServer, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> States:
    """The server's states, asked for one row after another."""
    return run(job_of(tmp_path_factory.mktemp("float32"), folder, **by_server(server, inFlightTokens=1)))


def test_a_servers_states_are_those_of_the_transformers_library(
    in_float32: States, folder: Path, tmp_path: Path
) -> None:
    reference = run(job_of(tmp_path, folder))

    assert max(map(len, in_float32.values())) > 3 * STEP
    error = worst_error(in_float32, reference)

    print(f"worst relative L2 of a (token, layer): {error:.2e}")
    assert error <= LARGEST_ERROR


def test_a_bfloat16_store_is_the_float32_one_rounded(
    in_float32: States, server: HiddenStatesServer, folder: Path, tmp_path: Path
) -> None:
    rounded = job_of(tmp_path, folder, **by_server(server, inFlightTokens=1, dtype="BFloat16"))
    run(rounded)

    with rounded.store() as store:
        assert store.binding.layer_ids == LAYER_IDS
        for row in store:
            assert np.array_equal(row.bits(), to_bfloat16(in_float32[row.line.id]))


def test_rows_of_all_lengths_at_once_are_what_they_are_alone(
    in_float32: States, server: HiddenStatesServer, folder: Path, tmp_path: Path
) -> None:
    together = run(job_of(tmp_path, folder, **by_server(server)))

    assert worst_error(together, in_float32) <= LARGEST_ERROR
    assert list(server.staging.iterdir()) == []
