"""One run through everything that can die, with servers of its own."""

from __future__ import annotations

import pytest

from tests.support.bed import Bed
from tests.support.killing import run_through_kills

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_every_row_is_there_once_after_generator_server_and_operator_were_killed(bed: Bed) -> None:
    run_through_kills(bed, "killed", seed=1)
