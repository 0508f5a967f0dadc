"""Which servers are refused before the mass of rows, and which rows do not make a server refused.

Reported by users of other tools, and tested here: a layer is dropped, states are all zero, the last state is
of another layer, which only the server's own next tokens show.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.remedies import REMEDIES
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.job import until
from tests.support.states_server import StatesServer, Trouble, assert_stored, ids_of, with_rows

LONG = 20  # tokens


def longest_first(job: ExtractJob) -> list[list[int]]:
    """The tokens of each row, in the order in which rows are done."""
    return sorted(map(ids_of, job.records), key=lambda ids: -len(ids))


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (Trouble.LAYER_DROPPED, r"states \[\d+, 2, 16\] are not those of 3 layers"),
        (Trouble.ZERO, "vectors are zero"),
        (Trouble.ALL_ZERO, r"(\d+) of \1 vectors are zero"),
        (Trouble.NOT_A_NUMBER, "NaN in 1 of"),
        (Trouble.INFINITE, "infinite in 1 of"),
        (Trouble.SHORT, "tokens were asked for"),
        (Trouble.OTHER_TOKENS, "1 ids differ, the first at position"),
        (Trouble.MISSING, "no states came: the server let go of"),
        (Trouble.TORN, "no states came: cmpl-draftmill-"),
        (Trouble.NO_PATH, "the answer names no hidden_states_path"),
        (Trouble.ELSEWHERE, "the server writes states to /elsewhere, and the extractor reads them in"),
        (Trouble.BAD_REQUEST, "HTTP 400"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Trouble) else "",
)
async def test_a_server_that_cannot_be_trusted_is_refused_before_the_mass(
    job: ExtractJob, server: StatesServer, trouble: Trouble, sentence: str
) -> None:
    """Reported failure 4 (vllm-project/vllm#48124): the last id was dropped, three states for four."""
    job.add_many(5)
    server.from_the_start = True
    server.trouble = lambda _ids, _number: trouble

    with pytest.raises(JobRefusedError, match=sentence) as refused:
        await job.extract()

    remedies = (*REMEDIES.values(), "give it to the server as shared_storage_path")
    assert refused.value.message.endswith(remedies)
    assert not list(job.output.glob("states-*"))
    assert not list(server.staging.iterdir())


@pytest.mark.parametrize(
    "is_bad",
    [lambda ids: len(ids) > LONG, lambda ids: len(ids) <= LONG],
    ids=["long rows", "short rows"],
)
async def test_a_server_that_is_wrong_for_rows_of_some_length_is_refused_before_the_mass(
    job: ExtractJob, server: StatesServer, is_bad: Callable[[Sequence[int]], bool]
) -> None:
    for number in range(10):
        job.add(4, 4 if number % 2 else LONG)
    server.from_the_start = True
    server.trouble = lambda ids, _number: Trouble.NOT_A_NUMBER if is_bad(ids) else None

    with pytest.raises(JobRefusedError, match=r"NaN in 1 of .* NaN in 1 of .* NaN in 1 of") as refused:
        await job.extract()

    assert refused.value.reason == "PreflightFailed"
    assert not list(job.output.glob("states-*"))


async def test_a_server_that_is_wrong_for_rows_beside_each_other_is_refused_before_the_mass(
    job: ExtractJob, server: StatesServer
) -> None:
    """Reported failure 11 (sgl-project/sglang#8066): states were incomplete when requests were batched."""
    job.add_many(10)
    server.from_the_start = True
    server.trouble = lambda _ids, _number: Trouble.NOT_A_NUMBER if server.in_flight > 1 else None
    server.holding.clear()
    extracting = asyncio.create_task(job.extract())
    for asked in (1, 2, 4):  # a short row, a long one, both
        await until(lambda wanted=asked: len(server.asked) == wanted)
        server.let_through()

    with pytest.raises(JobRefusedError, match="are right alone, but not beside each other: NaN in 1 of"):
        await extracting

    short, long = longest_first(job)[-1], longest_first(job)[0]
    assert [list(ids) for ids in server.asked[:2]] == [short, long]
    assert sorted(map(list, server.asked[2:])) == sorted([short, long])


@pytest.mark.parametrize(
    ("place", "trouble"),
    [
        (0, Trouble.NOT_A_NUMBER),
        (0, Trouble.OTHER_TOKENS),
        (0, Trouble.TORN),
        (0, Trouble.BAD_REQUEST),
        (0, Trouble.NO_PATH),
        (0, Trouble.SERVER_ERROR),
        (-1, Trouble.NOT_A_NUMBER),
        (-1, Trouble.SERVER_ERROR),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Trouble) else f"place {value}",
)
async def test_a_bad_row_is_no_proof_against_a_server_whatever_is_bad_about_it(
    job: ExtractJob, server: StatesServer, place: int, trouble: Trouble
) -> None:
    job.add_many(100, longest=8)
    job.fields["retries"] = 0
    bad = longest_first(job)[place]
    server.from_the_start = True
    server.trouble = with_rows(trouble, [bad])

    code, progress = await job.extract()

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 99, 1)
    assert_stored(job, server, without=1)


async def test_a_server_that_comes_back_is_not_asked_for_the_row_that_killed_it_to_prove_itself(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(100, longest=8)
    deadly = longest_first(job)[0]
    server.from_the_start = True
    server.trouble = with_rows(Trouble.DEATH, [deadly])

    extracting = asyncio.create_task(job.extract())
    while not extracting.done():
        await until(lambda: server.is_dead or extracting.done(), within=60)
        server.is_dead = False
    code, progress = await extracting

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 99, 1)
    (line,) = (json.loads(line) for line in (job.output / "quarantine.jsonl").read_text().splitlines())
    assert server.asked.count(tuple(deadly)) <= 1 + line["tries"]
    assert_stored(job, server, without=1)


async def test_two_bad_rows_of_different_kinds_are_no_proof_against_a_server(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(200, longest=8)
    job.fields["retries"] = 0
    order = longest_first(job)
    troubles = {tuple(order[0]): Trouble.INFINITE, tuple(order[-1]): Trouble.BAD_REQUEST}
    server.from_the_start = True
    server.trouble = lambda ids, _number: troubles.get(tuple(ids))

    _, progress = await job.extract()

    assert (progress.rows, progress.quarantined) == (198, 2)


async def test_of_many_rows_that_are_told_as_many_may_be_bad_as_a_run_may_lose(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(400, longest=8)
    job.fields |= {"retries": 0, "verify": {"teacherArgmaxSample": 100}}
    order = longest_first(job)
    told = [order[round(place * 399 / 99)] for place in range(100)]
    server.from_the_start = True
    server.trouble = with_rows(Trouble.NOT_A_NUMBER, told[20:100:20])

    _, progress = await job.extract()

    assert (progress.rows, progress.quarantined) == (396, 4)


async def test_when_a_bad_row_is_all_that_is_left_the_server_is_proven_with_rows_that_are_stored(
    job: ExtractJob, server: StatesServer
) -> None:
    job.add_many(100, longest=8)
    job.fields["retries"] = 0
    job.run["uid"] = "one"
    bad = longest_first(job)[50]
    server.from_the_start = True
    server.trouble = with_rows(Trouble.ZERO, [bad])
    await job.extract()

    job.run["uid"] = "another"
    code, progress = await job.extract()

    assert (code, progress.rows, progress.quarantined) == (ExitCode.DONE, 99, 1)
    assert_stored(job, server, without=1)


async def test_a_server_need_not_take_the_longer_rows_that_are_stored(
    job: ExtractJob, server: StatesServer
) -> None:
    for _ in range(3):
        job.add(4, 16)
    await job.extract()
    job.add_many(20, longest=8)
    server.max_model_len = 10
    server.from_the_start = True
    server.trouble = lambda ids, _number: Trouble.BAD_REQUEST if len(ids) >= 10 else None

    _, progress = await job.extract()

    assert progress.rows == 23
    assert_stored(job, server)


async def test_a_server_whose_files_cannot_be_deleted_is_refused_before_the_mass(
    job: ExtractJob, server: StatesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.add_many(5)
    unlink = Path.unlink

    def unlink_ours(path: Path, *, missing_ok: bool = False) -> None:
        if path.parent == server.staging:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink_ours)
        with pytest.raises(JobRefusedError, match=r"cannot delete .*; let server and extractor run as one"):
            await job.extract()

    assert not list(job.output.glob("states-*"))


async def test_a_server_with_too_short_a_limit_is_refused(job: ExtractJob, server: StatesServer) -> None:
    job.add(20, 20)
    server.max_model_len = 40

    with pytest.raises(
        JobRefusedError, match="has 40 tokens, and its max_model_len is 40; it must be larger"
    ):
        await job.extract()


@pytest.mark.parametrize("count", [2, 5])
async def test_as_many_rows_as_the_spec_says_are_told_from_the_longest_to_the_shortest(
    job: ExtractJob, server: StatesServer, count: int
) -> None:
    job.add_many(100)
    job.fields["verify"] = {"teacherArgmaxSample": count}

    await job.extract()

    order = longest_first(job)
    assert len(set(server.told)) == len(server.told) == count
    assert list(server.told[0]) == order[0]
    assert list(server.told[-1]) == order[-1]
    assert [len(ids) for ids in server.told] == sorted(map(len, server.told), reverse=True)


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
