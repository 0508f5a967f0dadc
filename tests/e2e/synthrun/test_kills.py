"""One run through everything that can die, with servers of its own."""

from __future__ import annotations

import time

import pytest

from tests.support.bed import Bed
from tests.support.killing import Kills
from tests.support.records_on_disk import assert_complete
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

IDLE_LIMIT = 20.0  # seconds; this machine's two cores start a Python process and answer requests at once


def test_every_row_is_there_once_after_generator_server_and_operator_were_killed(bed: Bed) -> None:
    run = bed.create_run(
        "killed",
        datasets=[
            bed.dataset("B1_killed", bed.prompts("killed1.jsonl", 40)),
            bed.dataset("B2_killed", bed.prompts("killed2.jsonl", 40), sampling={"temperature": "0"}),
        ],
        server=bed.server(gpus=8),
        generation={"concurrency": 6},
        sampling={"temperature": "0.8", "maxCompletionTokens": 48},
    )

    idle = Kills(bed, run, seed=1).carry_out(generator=3, server=1, operator=2)
    status = bed.kube.wait_phase(run, "Succeeded", within=240)

    assert_complete(bed.output(run), {"B1_killed": 40, "B2_killed": 40})
    progress = status["progress"]
    assert (progress["done"], progress["total"], progress["errors"]) == (80, 80, 0)
    assert status["output"]["records"] == 80
    assert status["attempts"]["count"] == 4
    assert bed.kube.pods(run, "server") == []
    print(f"idle after kills, in seconds: {idle}")
    assert max(idle) < IDLE_LIMIT


def test_an_idle_operator_writes_nothing_but_its_lease(bed: Bed) -> None:
    """Runs of the tests before have ended, which is when an operator is tempted to go on writing."""
    since = time.time()

    until(lambda: time.time() > since + 60, 70, "a minute passes")

    writes = bed.operator_writes(since)
    assert [write for write in writes if write.resource != "leases"] == []
    assert len(writes) > 10, "the Lease is kept"
