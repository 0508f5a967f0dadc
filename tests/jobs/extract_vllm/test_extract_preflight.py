"""Which servers are refused before the mass of rows.

Reported by users of other tools, and tested here: a layer is dropped, states are all zero, the last state is
of another layer, which only the server's own next tokens show.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_jobs.errors import JobRefusedError
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.states_server import StatesServer, Trouble


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (Trouble.LAYER_DROPPED, r"states \[\d+, 2, 16\] are not those of 3 layers"),
        (Trouble.ZERO, "vectors are zero"),
        (Trouble.NOT_A_NUMBER, "NaN in 1 of"),
        (Trouble.SHORT, "tokens were asked for"),
        (Trouble.OTHER_TOKENS, "1 ids differ, the first at position"),
        (Trouble.MISSING, "it writes no states: the server let go of"),
        (Trouble.NO_PATH, "the answer names no hidden_states_path"),
        (Trouble.ELSEWHERE, "the server writes states to /elsewhere, and the extractor reads them in"),
        (Trouble.BAD_REQUEST, "HTTP 400"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Trouble) else "",
)
async def test_a_server_that_cannot_be_trusted_is_refused_before_the_mass(
    job: ExtractJob, server: StatesServer, trouble: Trouble, sentence: str
) -> None:
    job.add_many(5)
    server.from_the_start = True
    server.trouble = lambda _ids, _number: trouble

    with pytest.raises(JobRefusedError, match=sentence):
        await job.extract()

    assert not list(job.output.glob("states-*"))


async def test_a_server_with_too_short_a_limit_is_refused(job: ExtractJob, server: StatesServer) -> None:
    job.add(20, 20)
    server.max_model_len = 40

    with pytest.raises(
        JobRefusedError, match="has 40 tokens, and its max_model_len is 40; it must be larger"
    ):
        await job.extract()


async def test_a_server_of_another_model_is_refused_by_the_teacher_self_check(
    job: ExtractJob, server: StatesServer, tmp_path: Path
) -> None:
    job.add_many(20)
    server.teach(make_headed_model(tmp_path / "another", seed=1))

    with pytest.raises(
        JobRefusedError, match=r"gives its likeliest token at .* of \d+ positions; 99.9% are"
    ) as e:
        await job.extract()

    assert e.value.reason == "PreflightFailed"
