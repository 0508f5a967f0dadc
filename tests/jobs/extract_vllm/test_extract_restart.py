"""Another restart word: what was given up is asked for again."""

from __future__ import annotations

from tests.support.extract_job import ExtractJob
from tests.support.states_server import StatesServer, Trouble, assert_stored, ids_of, with_rows


async def test_a_quarantined_row_is_asked_for_again_at_another_restart_word_and_not_before(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(100, longest=8)
    job.fields["retries"] = 0
    job.run |= {"uid": "one", "restart": "first"}
    bad = ids_of(job.records[5])
    server.trouble = with_rows(Trouble.ZERO, [bad])
    await job.extract()
    server.trouble = lambda _ids, _number: None
    server.asked.clear()

    _, progress = await job.extract()
    assert (progress.rows, progress.quarantined) == (99, 1)
    assert tuple(bad) not in server.asked

    job.run["restart"] = "second"
    _, progress = await job.extract()

    assert (progress.rows, progress.quarantined) == (100, 0)
    assert tuple(bad) in server.asked
    assert_stored(job, server)
