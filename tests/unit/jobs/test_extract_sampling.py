"""Which rows a server is proven with."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_api.extractjob import JobRecords
from draftmill_api.jobconfig import JobModel
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.extractrun import OnLongRow
from draftmill_jobs.extract.index import Input
from draftmill_jobs.extract.records import Row, find_files
from draftmill_jobs.extract.sampling import Sample
from draftmill_jobs.extract.selection import Rules
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.shared.settings import Share
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_headed_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def job(tmp_path: Path, model: Path) -> ExtractJob:
    return ExtractJob(tmp_path / "job", model)


def sample_of(job: ExtractJob, *lengths: int, left: range | None = None) -> Sample:
    """Of rows of so many tokens, of which those are left whose numbers are."""
    for tokens in lengths:
        job.add(1, tokens - 1)
    job.write()
    facts = read_model(JobModel(name="tiny", path=str(job.model))).facts
    rules = Rules(frozenset(RecordStatus), None, OnLongRow.CUT, None)
    source = Input(find_files(JobRecords(path=str(job.input)), facts), rules, facts)
    wanted = [job.records[number]["id"] for number in left or range(len(lengths))]

    def is_done(row: Row) -> bool:
        return row.facts.id not in wanted

    _, index = source.survey(None, share=Share(0, 1), is_done=is_done)
    return Sample.of(source, index)


def lengths_near(sample: Sample, place: int) -> list[int]:
    return [row.tokens for row in sample.near(place)]


def test_places_are_spread_from_the_longest_row_to_the_shortest(job: ExtractJob) -> None:
    sample = sample_of(job, *range(2, 22))

    assert sample.spread(1) == [0]
    assert sample.spread(2) == [0, 19]
    assert sample.spread(5) == [0, 5, 10, 14, 19]
    assert [lengths_near(sample, place)[0] for place in sample.spread(2)] == [21, 2]


@pytest.mark.parametrize("count", [2, 8])
def test_of_fewer_rows_each_is_a_place_once(job: ExtractJob, count: int) -> None:
    assert sample_of(job, 4).spread(count) == [0]
    assert sample_of(job, 4).spread(count) == [0, 1]


def test_there_are_other_rows_of_about_the_length(job: ExtractJob) -> None:
    sample = sample_of(job, *range(2, 22))

    assert lengths_near(sample, 0) == [21, 20, 19, 18, 17]
    assert lengths_near(sample, 19) == [2, 3, 4, 5, 6]
    assert lengths_near(sample, 10) == [11, 12, 10, 13, 9]


def test_they_are_apart_by_as_many_rows_as_a_run_may_lose(job: ExtractJob) -> None:
    sample = sample_of(job, *range(2, 302))

    assert lengths_near(sample, 0) == [301, 298, 295, 292, 289]


def test_rows_that_are_settled_are_among_them_and_the_longest_that_is_left_is_known(job: ExtractJob) -> None:
    sample = sample_of(job, 9, 7, 5, 3, left=range(2, 3))

    assert lengths_near(sample, 0) == [9, 7, 5, 3]
    assert sample.longest().tokens == 5


def test_rows_that_are_too_long_for_a_server_are_left_out(job: ExtractJob) -> None:
    sample = sample_of(job, 9, 7, 5, 3).shorter_than(7)

    assert lengths_near(sample, 0) == [5, 3]
    assert sample.spread(8) == [0, 1]
