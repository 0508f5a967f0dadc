from __future__ import annotations

import pytest

from tests.support.bed import Bed
from tests.support.killing import run_through_kills

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("seed", range(101, 106))
def test_every_row_is_there_once_whatever_is_killed_when(bed: Bed, seed: int) -> None:
    with bed.operator_away():
        pass  # each time another pod: the kubelet waits longer after every death of one
    run_through_kills(bed, f"killed-{seed}", seed)
    bed.delete_all_runs()
