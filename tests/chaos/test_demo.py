"""What `make demo` does, with fewer rows, on a cluster of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_dev.__main__ import main
from draftmill_dev.demo import run
from tests.support.demo_cluster import no_cluster_yet
from tests.support.records_on_disk import assert_complete

pytestmark = [pytest.mark.life, pytest.mark.timeout(1200)]

NAME = "draftmill-demo-test"
ROWS = 8  # in each of the two datasets


@pytest.fixture
def output() -> Iterator[Path]:
    """The demo's output folder, on a cluster that is not there yet."""
    with no_cluster_yet(NAME) as data:
        yield data / run.OUTPUT


def test_two_demos_in_a_row_each_end_with_a_finished_dataset(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = []
    for _ in range(2):
        assert main(["demo", "--name", NAME, "--rows", str(ROWS)]) == 0
        shown = capsys.readouterr()
        assert shown.out == f"SynthRun demo Succeeded {2 * ROWS}/{2 * ROWS}\n", shown.err
        assert "── B2_logic " in shown.err
        records = assert_complete(output, {"B1_arithmetic": ROWS, "B2_logic": ROWS})
        servers.append({record["server"] for record in records})
    first, second = servers
    assert first.isdisjoint(second), "the second demo shows answers of the first"
