"""Hidden states of a real model: vLLM on CPU in bfloat16, as a server on GPUs would compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_dev import model
from tests.support.hidden_states_server import by_server, job_of, run, serving, worst_error

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

LAYER_IDS = [2, 15, 27, 30]
ROWS = 8  # CPUs that have no bfloat16 take their time
LARGEST_ERROR = 0.3  # relative L2 of a (token, layer); 0.20 measured


def test_a_bfloat16_server_is_trusted_and_its_states_are_near_those_of_the_library(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = model.build() / model.NAME
    reference = run(job_of(tmp_path / "reference", folder, rows=ROWS))
    place = tmp_path_factory.mktemp("server")
    with serving(folder, place, dtype="bfloat16", layer_ids=LAYER_IDS) as server:
        states = run(job_of(tmp_path / "states", folder, rows=ROWS, **by_server(server, dtype="BFloat16")))

    error = worst_error(states, reference)

    print(f"worst relative L2 of a (token, layer): {error:.2e}")
    assert error <= LARGEST_ERROR
