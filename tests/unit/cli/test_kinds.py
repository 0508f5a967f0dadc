from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from draftmill_api.v1alpha1.resources import DRAFTER_TRAIN, EXTRACT_RUN, SYNTH_RUN, Resource
from draftmill_cli.cluster import the_one
from draftmill_cli.commands.get import rows_of
from draftmill_cli.commands.retry import lacks_evaluation
from draftmill_cli.errors import CliError
from draftmill_cli.kinds import RunName, parse_run, split
from draftmill_cli.view import line, report
from tests.support.draftertrains import smallest_drafter_train, train_evaluation, train_progress
from tests.support.extractruns import extract_progress, smallest_extract_run


@pytest.mark.parametrize(
    ("text", "resource", "name"),
    [
        ("k25", None, "k25"),
        ("er/k25", EXTRACT_RUN, "k25"),
        ("extractrun/k25", EXTRACT_RUN, "k25"),
        ("extractruns/k25", EXTRACT_RUN, "k25"),
        ("SR/k25", SYNTH_RUN, "k25"),
        ("dt/k25", DRAFTER_TRAIN, "k25"),
        ("draftertrain/k25", DRAFTER_TRAIN, "k25"),
    ],
)
def test_a_kind_may_stand_before_the_name(text: str, resource: Resource | None, name: str) -> None:
    assert split(text) == (resource, name)


def test_the_report_of_a_training_says_what_servers_made_of_the_drafter() -> None:
    manifest = smallest_drafter_train("k25")
    manifest["metadata"]["namespace"] = "team"
    manifest |= {"status": {"phase": "Succeeded", "evaluation": train_evaluation().to_json()}}
    console = Console(file=io.StringIO(), width=250)
    console.print(report(parse_run(manifest), datetime(2026, 1, 1, tzinfo=UTC)))
    assert isinstance(console.file, io.StringIO)
    assert (
        "acceptance length 2.41 (by position 0.731 0.442 0.237) over 1,180 cycles; 1.62 times as fast at 1 "
        "requests (41.0 -> 66.4 tok/s); 32 of 32 answers the same"
    ) in console.file.getvalue()


def test_an_unknown_kind_is_told_the_known_ones() -> None:
    with pytest.raises(CliError, match="job/ is no kind of run; there are sr/, er/, dt/"):
        split("job/k25")


def test_a_name_of_several_kinds_has_to_be_said_with_its_kind() -> None:
    found = [RunName(SYNTH_RUN, "k25"), RunName(EXTRACT_RUN, "k25")]
    with pytest.raises(CliError, match="several runs are called k25; say sr/k25 or er/k25"):
        the_one(found, "k25", "team")
    assert the_one(found[1:], "k25", "team") == found[1]


def test_a_name_that_nobody_has_is_told_where_to_look() -> None:
    with pytest.raises(CliError, match="there is no k25 in namespace team"):
        the_one([], "k25", "team")


def test_runs_of_several_kinds_are_listed_as_every_command_takes_them() -> None:
    table = {
        "columnDefinitions": [{"name": "Name"}, {"name": "Phase"}],
        "rows": [{"cells": ["k25", "Running"], "object": {"metadata": {"namespace": "team"}}}],
    }
    assert rows_of(table, wide=False, with_namespace=False, kind="er")[1] == ["er/k25", "Running"]


def test_an_extraction_in_one_line() -> None:
    progress = extract_progress(3, 12).model_copy(update={"size": "14 MB", "tokens_per_second": 900})
    status = {"phase": "Running", "progress": progress.to_json()}
    run = parse_run(smallest_extract_run("k25") | {"status": status})
    assert line(run) == "Running, 3/12 (0 quarantined), 14 MB, 900 tok/s"


def test_a_training_in_one_line() -> None:
    progress = train_progress(120, 2450).model_copy(update={"tokens_per_second": 5200, "eta": "12m"})
    status = {"phase": "Running", "progress": progress.to_json()}
    run = parse_run(smallest_drafter_train("k25") | {"status": status})
    assert line(run) == (
        "Running, epoch 1, step 120/2450, loss 2.31, acceptance length 1.9, 5200 tok/s, ETA: 12m"
    )


def test_a_drafter_that_is_evaluated_says_which_server_is_asked() -> None:
    told = "the plain server (1 of 2) loads the target"
    manifest = smallest_drafter_train("k25") | {"status": {"phase": "Finishing", "message": told}}
    assert line(parse_run(manifest)) == f"Finishing, {told}"


def test_a_drafter_is_reported_with_its_folders_and_what_its_figure_is_called() -> None:
    drafter = {
        "volume": {"persistentVolumeClaim": {"claimName": "data"}},
        "path": "drafters/k25",
        "manifest": "drafters/k25/manifest.json",
        "manifestSHA256": "d" * 64,
        "model": {"name": "kimi", "fingerprint": "f" * 64},
        "vllm": "drafters/k25/drafter",
        "sglang": "drafters/k25/drafter",
        "steps": 2450,
        "teacherAgreement": "2.1",
        "draftVocabularySize": 32000,
        "layerIds": [2, 15, 27],
    }
    manifest = smallest_drafter_train("k25")
    manifest["metadata"]["namespace"] = "team"
    manifest |= {"status": {"phase": "Succeeded", "output": drafter}}
    screen = Console(width=200, file=io.StringIO(), record=True)
    screen.print(report(parse_run(manifest), datetime(2026, 1, 1, tzinfo=UTC)))
    text = screen.export_text()
    assert "drafters/k25/drafter, teacher agreement 2.1" in text
    assert "acceptance length" not in text


@pytest.mark.parametrize(("status", "lacks"), [("False", True), ("True", False), (None, False)])
def test_a_run_that_could_not_evaluate_its_drafter_may_be_retried(status: str | None, *, lacks: bool) -> None:
    manifest = smallest_drafter_train("k25")
    evaluated = {
        "type": "Evaluated",
        "reason": "NotDrafting",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    conditions = [evaluated | {"status": status}] if status is not None else []
    manifest |= {"status": {"phase": "Succeeded", "conditions": conditions}}
    assert lacks_evaluation(parse_run(manifest)) is lacks
