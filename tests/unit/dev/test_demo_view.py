"""The line that the demo shows of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmill_dev.demo import view
from draftmill_dev.demo.run import last_line
from draftmill_dev.demo.view import describe
from draftmill_dev.errors import DevError
from draftmill_dev.kubectl import Kubectl

FAILS_ONCE = """#!/bin/sh
cd "$(dirname "$0")"
[ -e asked ] && exec echo '{"status": {"phase": "Succeeded"}}'
touch asked
echo 'net/http: TLS handshake timeout' >&2
exit 1
"""


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


def test_an_api_server_that_does_not_answer_once_does_not_end_the_demo(kubectl: Kubectl) -> None:
    assert view.follow(kubectl, "demo") == {"phase": "Succeeded"}


def test_an_api_server_that_stays_away_ends_it_with_its_own_words(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_LONGEST_ABSENCE", 0.0)

    with pytest.raises(DevError, match="TLS handshake timeout"):
        view.follow(kubectl, "demo")


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """A kubectl that fails the first time."""
    program = tmp_path / "kubectl"
    program.write_text(FAILS_ONCE)
    program.chmod(0o755)
    return Kubectl(program, program, None, "default")
