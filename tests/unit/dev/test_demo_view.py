"""The line that the demo shows of a run."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill_dev.demo.run import last_line
from draftmill_dev.demo.view import describe


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ({}, "waiting for the operator"),
        ({"phase": "Planning"}, "Planning"),
        ({"phase": "Starting", "message": "0 of 1 servers ready"}, "Starting: 0 of 1 servers ready"),
        (
            {
                "phase": "Running",
                "progress": {"done": 57, "total": 200, "tokensPerSecond": 210, "eta": "48s"},
            },
            "Running: 57/200 answers, 210 tok/s, 48s to go",
        ),
        (
            {"phase": "Running", "progress": {"done": 57, "total": 200, "errors": 2, "eta": ""}},
            "Running: 57/200 answers, 2 errors",
        ),
        ({"phase": "Running", "message": "generating"}, "Running: generating"),
    ],
)
def test_a_status_is_one_line(status: dict[str, Any], line: str) -> None:
    assert describe(status) == line


def test_the_demo_ends_with_phase_and_counts() -> None:
    status = {"phase": "Succeeded", "progress": {"done": 200, "total": 200}}

    assert last_line(status) == "SynthRun demo Succeeded 200/200"
