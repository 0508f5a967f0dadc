"""One run through everything that can die, with servers of its own."""

from __future__ import annotations

import time

import pytest

from tests.support.bed import Bed
from tests.support.killing import run_through_kills
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_every_row_is_there_once_after_generator_server_and_operator_were_killed(bed: Bed) -> None:
    run_through_kills(bed, "killed", seed=1)


def test_an_idle_operator_writes_nothing_but_its_lease(bed: Bed) -> None:
    """Runs of the tests before have ended, which is when an operator is tempted to go on writing."""
    since = time.time()

    until(lambda: time.time() > since + 60, 70, "a minute passes")

    writes = bed.operator_writes(since)
    assert [write for write in writes if write.resource != "leases"] == []
    assert len(writes) > 10, "the Lease is kept"
