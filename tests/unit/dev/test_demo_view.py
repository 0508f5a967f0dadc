"""The line that the demo shows of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill_dev.demo import pipeline, view
from draftmill_dev.demo.run import RUN, last_line
from draftmill_dev.demo.view import Run, describe
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
        (
            {"phase": "Running", "progress": {"rows": 12, "total": 300, "tokensPerSecond": 800}},
            "Running: 12/300 rows, 800 tok/s",
        ),
        (
            {"phase": "Running", "progress": {"step": 40, "total": 350, "loss": "4.21", "eta": "5m"}},
            "Running: 40/350 steps, loss 4.21, 5m to go",
        ),
        ({"phase": "Running", "message": "generating"}, "Running: generating"),
    ],
)
def test_a_status_is_one_line(status: dict[str, Any], line: str) -> None:
    assert describe(status) == line


def test_the_demo_ends_with_phase_and_counts() -> None:
    status = {"phase": "Succeeded", "progress": {"done": 200, "total": 200}}

    assert last_line(status) == "SynthRun demo Succeeded 200/200"


def test_the_demo_of_a_pipeline_ends_with_what_a_server_accepted() -> None:
    evaluation = {"acceptanceLength": "1.31", "cycles": 498, "identical": 24, "answers": 24}

    assert pipeline.last_line({"phase": "Succeeded", "evaluation": evaluation}) == (
        "DrafterTrain pipeline Succeeded: acceptance length 1.31 over 498 cycles, 24/24 answers the same"
    )


def test_the_pipelines_runs_and_folders_are_those_of_its_example() -> None:
    runs = list(yaml.safe_load_all(pipeline.EXAMPLE.read_text()))

    assert [Run(run["kind"], run["metadata"]["name"]) for run in runs] == [*pipeline.RUNS]
    outputs = [run["spec"]["output"]["path"] for run in runs]
    assert outputs[-1] == pipeline.DRAFTER
    assert all(path.startswith(f"{pipeline.OUTPUT}/") for path in outputs)


def test_an_api_server_that_does_not_answer_once_does_not_end_the_demo(kubectl: Kubectl) -> None:
    assert view.follow(kubectl, RUN) == {"phase": "Succeeded"}


def test_an_api_server_that_stays_away_ends_it_with_its_own_words(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_LONGEST_ABSENCE", 0.0)

    with pytest.raises(DevError, match="TLS handshake timeout"):
        view.follow(kubectl, RUN)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """A kubectl that fails the first time."""
    program = tmp_path / "kubectl"
    program.write_text(FAILS_ONCE)
    program.chmod(0o755)
    return Kubectl(program, program, None, "default")
