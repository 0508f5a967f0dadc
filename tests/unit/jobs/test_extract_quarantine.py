"""Rows that were given up, as each of several extractors tells of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_jobs.extract.quarantine import Quarantine, read_quarantine
from draftmill_jobs.extract.records import Row
from draftmill_jobs.prompts.rows import owns
from draftmill_jobs.shared.settings import Share
from tests.support.states import RUN, row

SHARES = (Share(0, 2), Share(1, 2))


def test_a_row_that_was_given_up_is_told_of_by_the_one_extractor_whose_it_is(tmp_path: Path) -> None:
    rows = {
        share: next(found for found in map(row, range(100)) if owns(share, found.facts.id))
        for share in SHARES
    }
    for share, found in rows.items():
        quarantine = Quarantine(tmp_path, RUN, share)
        quarantine.add(Row(found.facts, found.token_ids, found.loss_mask), "all_zero", "zeros", 2)
        quarantine.close()

    again = [Quarantine(tmp_path, RUN, share) for share in SHARES]

    assert [len(quarantine.rows) for quarantine in again] == [2, 2], "neither asks for them again"
    told = [(failure.count, failure.id) for quarantine in again for failure in quarantine.failures()]
    assert told == [(1, f"B1/{found.facts.id}") for found in rows.values()]


@pytest.mark.parametrize("change", [{"uid": "u2"}, {"restart": "again"}], ids=["run", "restart word"])
def test_a_row_is_given_up_for_one_run_and_one_restart_word(tmp_path: Path, change: dict[str, str]) -> None:
    found = row(1)
    quarantine = Quarantine(tmp_path, RUN, Share(0, 1))
    quarantine.add(Row(found.facts, found.token_ids, found.loss_mask), "all_zero", "zeros", 2)
    quarantine.close()

    assert read_quarantine(tmp_path, RUN).keys() == {found.facts.key}
    assert read_quarantine(tmp_path, RUN.model_copy(update=change)) == {}
