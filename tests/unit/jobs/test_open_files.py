"""A process has room for its connections, or says that it has not."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from draftmill_jobs.shared.open_files import allow_connections


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_may_open_as_many_files_as_it_needs(
    limits: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    allow_connections(100)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, hard), "it had enough"
    allow_connections(400)
    assert 400 < resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= hard
    assert not caplog.records


def test_more_requests_than_files_are_warned_of(
    limits: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    _, hard = limits
    allow_connections(hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    assert f"this process may open {hard} files" in caplog.text
