"""What `make demo-pipeline` does, with fewer rows, on a cluster of the test's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_api.drafter import DrafterManifest
from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_dev.__main__ import main
from draftmill_dev.demo import pipeline
from draftmill_jobs.shared.artefacts import MANIFEST_FILE
from tests.support.demo_cluster import no_cluster_yet

pytestmark = [pytest.mark.life, pytest.mark.timeout(2400)]

NAME = "draftmill-pipeline-test"
ROWS = 90  # in each of the two datasets
LEAST_CYCLES = 1000


@pytest.fixture
def drafter() -> Iterator[Path]:
    """The demo's last output, on a cluster that is not there yet."""
    with no_cluster_yet(NAME) as data:
        yield data / pipeline.DRAFTER


def test_three_runs_end_with_a_drafter_whose_tokens_a_real_server_accepts(
    drafter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo-pipeline", "--name", NAME, "--rows", str(ROWS)]) == 0
    shown = capsys.readouterr()

    assert re.fullmatch(r"DrafterTrain pipeline Succeeded: acceptance length 1\.\d\d over .*\n", shown.out)
    assert "The chain is whole" in shown.err
    manifest = DrafterManifest.model_validate_json((drafter / MANIFEST_FILE).read_bytes())
    assert manifest.evaluation is not None
    for measured in manifest.evaluation.measured:
        assert measured.cycles > 0
        assert measured.acceptance_length > 1
        assert measured.identical == measured.prompts
    _is_accepted_as_was_simulated(manifest)


def _is_accepted_as_was_simulated(manifest: DrafterManifest) -> None:
    """Within three standard errors at each position, over the same greedy answers."""
    simulated = manifest.acceptance
    assert simulated is not None
    assert simulated.yardstick is Yardstick.ACCEPTANCE_LENGTH
    assert manifest.evaluation is not None
    for measured in manifest.evaluation.measured:
        cycles = min(simulated.cycles, measured.cycles)
        print(f"served: {measured.acceptance_length:.3f} over {measured.cycles}, {measured.by_position}")
        print(f"simulated: {simulated.length:.3f} over {simulated.cycles}, {simulated.by_position}")
        assert cycles >= LEAST_CYCLES
        for expected, found in zip(simulated.by_position, measured.by_position, strict=True):
            error = math.sqrt(expected * (1 - expected) / cycles)
            assert abs(found - expected) <= 3 * error
