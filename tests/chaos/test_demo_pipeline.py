"""What `make demo-pipeline` does, with fewer rows, on a cluster of the test's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_api.drafter import DrafterManifest
from draftmill_dev import cache, cluster, volumes
from draftmill_dev.__main__ import main
from draftmill_dev.demo import pipeline
from draftmill_jobs.shared.artefacts import MANIFEST_FILE

pytestmark = [pytest.mark.life, pytest.mark.timeout(2400)]

NAME = "draftmill-pipeline-test"
ROWS = 60  # in each of the two datasets


@pytest.fixture
def drafter() -> Iterator[Path]:
    """The demo's last output, on a cluster that is not there yet."""
    with cache.lock(f"cluster-{NAME}"):
        cluster.down(NAME, purge=True)
        try:
            yield cluster.STATES / NAME / "volumes" / volumes.DATA / pipeline.DRAFTER
        finally:
            cluster.down(NAME, purge=True)


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
