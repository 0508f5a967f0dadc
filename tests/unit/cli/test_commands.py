from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from draftmill_cli.arguments import COMMANDS, JOB_STEPS
from draftmill_cli.commands.get import aligned, rows_of
from draftmill_cli.commands.retry import fresh
from draftmill_cli.main import main
from tests.support.records import record, write


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    assert ended.value.code == 0
    names = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")}
    assert names >= {*(command.name for command in COMMANDS), *JOB_STEPS}


@pytest.mark.parametrize("command", [*(command.name for command in COMMANDS), *JOB_STEPS])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    assert ended.value.code == 0
    assert f"usage: draftmill {command} " in capsys.readouterr().out


def test_generate_tells_what_it_does_when_too_many_rows_fail(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--when-paused {wait,exit}" in said
    assert "end with exit code 3, or stay until the config raises it or has another resumeToken" in said


def test_a_missing_extra_is_named_with_its_remedy() -> None:
    program = (
        "import sys\n"
        "sys.modules['kubernetes'] = None\n"
        "from draftmill_cli.main import main\n"
        "sys.exit(main(['get']))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "pip install 'draftmill[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_kubeconfig_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main(["get", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "give --kubeconfig" in capsys.readouterr().err


def test_samples_are_readable_and_taken_from_each_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "B1" / "raw_responses.jsonl", [record(0, "Four."), record(1, "Four!")])
    write(tmp_path / "B2" / "raw_responses.jsonl", [record(2, "[bold]Five[/bold]")])

    assert main(["sample", str(tmp_path), "-c", "2"]) == 0

    text = capsys.readouterr().out
    assert "user:\n    What is 2 + 2?\nanswer:\n    Four" in text
    assert "    [bold]Five[/bold]" in text
    assert "ok, stop, 3 prompt + 2 completion tokens, 1.5 s, by server-0" in text
    assert text.count("──") == 2


def test_the_dataset_of_samples_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "B1" / "raw_responses.jsonl", [record(0, "Four.")])
    write(tmp_path / "B2" / "raw_responses.jsonl", [record(2, "Five.")])

    assert main(["sample", str(tmp_path), "--dataset", "B2"]) == 0
    assert "Four." not in capsys.readouterr().out

    assert main(["sample", str(tmp_path), "--dataset", "B3"]) == 1
    assert "there are B1, B2" in capsys.readouterr().err


def test_wide_columns_are_left_out_unless_asked_for() -> None:
    table = {
        "columnDefinitions": [
            {"name": "Name", "priority": 0},
            {"name": "Done", "priority": 0},
            {"name": "Model", "priority": 1},
        ],
        "rows": [{"cells": ["demo", None, "smol"], "object": {"metadata": {"namespace": "team"}}}],
    }

    assert rows_of(table, wide=False, with_namespace=False) == [["NAME", "DONE"], ["demo", ""]]
    assert rows_of(table, wide=True, with_namespace=True) == [
        ["NAMESPACE", "NAME", "DONE", "MODEL"],
        ["team", "demo", "", "smol"],
    ]


def test_columns_are_aligned() -> None:
    assert aligned([["NAME", "DONE"], ["a-long-name", "3"]]) == ["NAME          DONE", "a-long-name   3"]


def test_a_retried_run_keeps_what_its_user_wrote_and_nothing_else() -> None:
    manifest = {
        "apiVersion": "draftmill.dev/v1alpha1",
        "kind": "SynthRun",
        "metadata": {
            "name": "demo",
            "namespace": "team",
            "labels": {"a": "b"},
            "uid": "u",
            "resourceVersion": "7",
            "managedFields": [],
        },
        "spec": {"x": 1},
        "status": {"phase": "Failed"},
    }

    assert fresh(manifest) == {
        "apiVersion": "draftmill.dev/v1alpha1",
        "kind": "SynthRun",
        "metadata": {"name": "demo", "namespace": "team", "labels": {"a": "b"}},
        "spec": {"x": 1},
    }
