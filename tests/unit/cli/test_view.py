from __future__ import annotations

import re
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from draftmill_cli.errors import CliError
from draftmill_cli.kinds import AnyRun, parse_run
from draftmill_cli.view import line, report, short_span

NOW = datetime(2026, 1, 1, 12, 2, 5, tzinfo=UTC)
SPEC = {
    "model": {"name": "smol", "path": "smol"},
    "storage": {
        "models": {"persistentVolumeClaim": {"claimName": "models"}},
        "data": {"persistentVolumeClaim": {"claimName": "data"}},
    },
    "endpoints": [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}],
    "output": {"path": "out"},
    "datasets": [{"name": "B1", "source": {"file": {"path": "b1.jsonl"}}}],
}
PROGRESS = {
    "done": 60,
    "total": 200,
    "ok": 58,
    "truncated": 2,
    "requestsPerSecond": "1.2",
    "tokensPerSecond": 402,
    "averageCompletionTokens": 335,
    "eta": "2m",
}


def run(**status: Any) -> AnyRun:
    metadata = {"name": "demo", "namespace": "default"}
    kind = {"apiVersion": "draftmill.dev/v1alpha1", "kind": "SynthRun"}
    return parse_run({**kind, "metadata": metadata, "spec": SPEC, "status": status})


def shown(state: AnyRun) -> str:
    screen = Console(file=StringIO(), width=200, color_system=None)
    screen.print(report(state, NOW))
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "Pending"),
        ({"phase": "Planning"}, "Planning"),
        (
            {
                "phase": "Starting",
                "servers": {"ready": 0, "wanted": 1, "summary": "0/1"},
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            },
            "Starting, servers 0/1, Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        ),
        (
            {"phase": "Running", "progress": PROGRESS},
            "Running, 60/200 (0 errors), 1.2 req/s, 402 tok/s, avg completion: 335 tokens, ETA: 2m",
        ),
        (
            {"phase": "Succeeded", "progress": {"done": 198, "total": 200, "errors": 2}},
            "Succeeded, 198/200 (2 errors)",
        ),
    ],
)
def test_a_run_is_told_in_one_line(status: dict[str, Any], expected: str) -> None:
    assert line(run(**status)) == expected


def test_the_report_of_a_running_run_has_counts_and_conditions() -> None:
    text = shown(
        run(
            phase="Running",
            startTime="2026-01-01T12:00:00Z",
            progress=PROGRESS,
            datasets=[{"name": "B1", "done": 60, "total": 200, "ok": 58, "truncated": 2}],
            conditions=[
                {
                    "type": "ServersReady",
                    "status": "True",
                    "reason": "Ready",
                    "message": "1 of 1 servers ready",
                    "lastTransitionTime": "2026-01-01T12:00:30Z",
                    "observedGeneration": 1,
                }
            ],
        )
    )

    assert "Running for 2m05s" in text
    assert "60/200 (0 errors)" in text
    assert "ServersReady" in text
    assert "1 of 1 servers ready" in text


def test_the_report_of_a_failed_run_has_the_reason_and_the_failures_with_what_to_do() -> None:
    text = shown(
        run(
            phase="Failed",
            reason="PreflightFailed",
            message="the server's prompt ids differ",
            startTime="2026-01-01T11:00:00Z",
            completionTime="2026-01-01T11:00:42Z",
            failures=[
                {"reason": "bad_request", "count": 3, "id": "k1", "message": "too long", "remedy": "cut it"}
            ],
        )
    )

    assert "Failed after 42s" in text
    assert "PreflightFailed: the server's prompt ids differ" in text
    assert re.search("FAILURE +ROWS +FOR EXAMPLE +MESSAGE +WHAT TO DO", text)
    assert re.search("bad_request +3 +k1 +too long +cut it", text)


def test_a_run_that_no_operator_has_seen_is_pending() -> None:
    assert "Pending" in shown(run())


def test_fields_of_a_newer_version_are_left_out() -> None:
    assert line(run(phase="Running", somethingNew={"a": 1})) == "Running"


def test_a_phase_of_a_newer_version_asks_for_an_update() -> None:
    with pytest.raises(CliError, match="install the version that the cluster has"):
        run(phase="Hibernating")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1, "0s"), (42.9, "42s"), (190, "3m10s"), (7_500, "2h05m")],
)
def test_spans_are_short(seconds: float, expected: str) -> None:
    assert short_span(seconds) == expected
