from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import Manifest, PartFile
from draftmill_api.record import DeadLetter
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_cli.main import main
from tests.support.records import key, manifest_dataset, record, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "B1_arithmetic" / "raw_responses.jsonl", [record(0), record(1)])
    return tmp_path


def append(folder: Path, text: str) -> None:
    with (folder / "B1_arithmetic" / "raw_responses.jsonl").open("a") as file:
        file.write(text)


def write_manifest(folder: Path) -> None:
    content = (folder / "B1_arithmetic" / "raw_responses.jsonl").read_bytes()
    file = PartFile(
        path="B1_arithmetic/raw_responses.jsonl",
        bytes=len(content),
        records=2,
        sha256=hashlib.sha256(content).hexdigest(),
    )
    manifest = Manifest(
        made_by="draftmill",
        run=JobRun(name="demo"),
        model=ModelFacts(
            fingerprint="f", architecture="A", layers=1, hidden_size=1, vocabulary_size=1, think_family="none"
        ),
        model_name="smol",
        tokenizer_sha256="t",
        chat_template_sha256="c",
        datasets=[manifest_dataset("B1_arithmetic", file)],
        records=2,
        completion_tokens=4,
        strangers=0,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json(by_alias=True))


def test_a_right_folder_is_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(folder)

    assert main(["check", str(folder)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["B1_arithmetic", "2", "2"]
    assert lines[-1] == "All is well."


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ('{"id": "half', "line 3 is torn"),
        ('{"id": 7}\n', "line 3 is not a whole line of its kind"),
        (record(1).model_dump_json() + "\n", f"row {key(1)} is there twice"),
        (
            record(5).model_copy(update={"completion_tokens": 9}).model_dump_json() + "\n",
            f"row {key(5)} states 9 completion tokens but has 2 output ids",
        ),
    ],
)
def test_each_kind_of_damage_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: str, words: str
) -> None:
    append(folder, damage)

    assert main(["check", str(folder)]) == 1

    text = capsys.readouterr().out
    assert words in text
    assert "Not well: 1 fault." in text


def test_a_file_that_changed_after_the_manifest_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_manifest(folder)
    append(folder, record(2).model_dump_json() + "\n")

    assert main(["check", str(folder)]) == 1
    assert "changed since manifest.json was written" in capsys.readouterr().out


def test_many_faults_are_counted_though_few_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append(folder, (record(1).model_dump_json() + "\n") * 10)

    assert main(["check", str(folder)]) == 1

    text = capsys.readouterr().out
    assert text.count("is there twice") == 3
    assert "7 more of the kind" in text
    assert "Not well: 10 faults." in text


def test_a_row_that_failed_is_told_with_what_to_do_and_is_no_fault(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letter = DeadLetter(
        id=key(7),
        prompt_key=key(7),
        sample_id=7,
        dataset="B1_arithmetic",
        sample=0,
        reason="overloaded",
        message="HTTP 429",
        permanent=False,
        tries=4,
        created="2026-01-01T00:00:00Z",
        expected_tokens=500,
        prompt_bytes=60,
    )
    (folder / "B1_arithmetic" / "dead_letter.jsonl").write_text(letter.model_dump_json() + "\n")
    assert main(["check", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"overloaded  1     {key(7)}  HTTP 429  lower generation.concurrency, or add servers" in said
    assert "All is well." in said
