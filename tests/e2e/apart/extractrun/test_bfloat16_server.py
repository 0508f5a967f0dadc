"""Hidden states of a real model: vLLM on CPU in bfloat16, as a server on GPUs would compute.

A bound on the error alone proves little: what enters one layer is much like what enters the next.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from draftmill_dev import model
from tests.support.hidden_states_server import States, by_server, job_of, run, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

LAYERS = 30
LAYER_IDS = [2, 15, 27, LAYERS]
AROUND = sorted({each for layer in LAYER_IDS for each in (layer - 1, layer, layer + 1) if each < LAYERS})
REFERENCE_IDS = [*AROUND, LAYERS]
ROWS = 8  # CPUs that have no bfloat16 take their time
LARGEST_ERROR = 0.3  # relative L2 of a (token, layer); 0.20 measured
LARGEST_MEDIAN = 0.035  # of them all; 0.011 measured
NEARER = 5  # times nearer to its own layer, in the median, than to those beside it; 15 and more measured


@pytest.fixture(scope="module")
def folder() -> Path:
    return model.build() / model.NAME


@pytest.fixture(scope="module")
def reference(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> States:
    """The library's states in float32 of the stored layers, and of those beside them."""
    return run(job_of(tmp_path_factory.mktemp("reference"), folder, rows=ROWS, layers={"ids": AROUND}))


@pytest.fixture(scope="module")
def states(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> States:
    """A server's states."""
    place = tmp_path_factory.mktemp("server")
    with serving(folder, place, dtype="bfloat16", layer_ids=LAYER_IDS) as server:
        return run(job_of(place / "job", folder, rows=ROWS, **by_server(server, dtype="BFloat16")))


def test_a_bfloat16_server_is_trusted_and_its_states_are_near_those_of_the_library(
    states: States, reference: States
) -> None:
    errors = np.concatenate([distances(states, reference, layer, layer) for layer in LAYER_IDS])

    worst, median = errors.max(), np.median(errors)
    print(f"relative L2 of a (token, layer): {worst:.2e} at worst, median {median:.2e}")
    assert worst <= LARGEST_ERROR
    assert median <= LARGEST_MEDIAN


@pytest.mark.parametrize("layer", LAYER_IDS)
def test_each_layer_of_a_bfloat16_server_is_nearer_to_itself_than_to_the_layers_beside_it(
    states: States, reference: States, layer: int
) -> None:
    own = np.median(distances(states, reference, layer, layer))
    beside = {
        other: np.median(distances(states, reference, layer, other))
        for other in (layer - 1, layer + 1)
        if other in REFERENCE_IDS
    }

    print(f"layer {layer}: {own:.2e}; of those beside it {beside}")
    assert beside
    assert NEARER * own <= min(beside.values())


def distances(states: States, reference: States, layer: int, other: int) -> NDArray[np.float32]:
    """Relative L2 of a stored layer's states against the reference's of another layer, by token."""
    stored, expected = LAYER_IDS.index(layer), REFERENCE_IDS.index(other)
    assert states.keys() == reference.keys()
    return np.concatenate(
        [
            np.linalg.norm(states[row][:, stored] - each[:, expected], axis=-1)
            / np.linalg.norm(each[:, expected], axis=-1)
            for row, each in reference.items()
        ]
    )
