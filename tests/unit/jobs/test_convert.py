"""Answers for other programs: read back with what those use, and written whole or not at all."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import datasets
import pytest
from pyarrow import parquet

from draftmill_api.record import Record, RecordStatus
from draftmill_cli.arguments import CONVERSIONS
from draftmill_cli.commands import convert as command
from draftmill_cli.errors import CliError
from draftmill_jobs.convert.converting import Target, convert
from draftmill_jobs.errors import JobRefusedError
from tests.support.engine_server import EngineServer
from tests.support.job import Job, prompts

SYSTEM = {"role": "system", "content": "be kind"}
PICTURE = {"type": "image_url", "image_url": {"url": "file:///a.png"}}


@pytest.fixture
async def finished(job: Job, server: EngineServer) -> Job:
    job.compression = "Zstd"
    job.datasets = {"A": prompts(8), "B": prompts(4)}
    await job.use(server).generate()
    job.finish()
    return job


def load_json(path: Path) -> list[dict[str, Any]]:
    """As speculators and SpecForge load it."""
    return list(
        datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(path.parent))
    )


@pytest.mark.parametrize("target", [Target.SPECULATORS, Target.SPECFORGE])
def test_the_exact_ids_are_masked_up_to_the_answer(finished: Job, tmp_path: Path, target: Target) -> None:
    output = tmp_path / "new" / "rows.jsonl"
    assert convert(finished.output, target, output).rows == 12
    rows = {row["id"]: row for row in load_json(output)}
    records = [*finished.lines(dataset="A"), *finished.lines(dataset="B")]
    assert len(rows) == len(records) == 12
    for record in records:
        row = rows[f"{record['dataset']}/{record['id']}"]
        assert row["input_ids"] == record["prompt_ids"] + record["output_ids"]
        assert row["loss_mask"] == [0] * len(record["prompt_ids"]) + [1] * len(record["output_ids"])
    if target is Target.SPECULATORS:
        keys = {"id", "primary_id", "input_ids", "loss_mask", "text", "metadata"}
        assert all(row.keys() == keys for row in rows.values())
    assert [path.name for path in output.parent.iterdir() if path.suffix == ".jsonl"] == ["rows.jsonl"]


async def test_conversations_of_every_shape_become_columns_of_one_type(
    job: Job, server: EngineServer, tmp_path: Path
) -> None:
    call = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    tool_use = [
        {"role": "assistant", "tool_calls": call},
        {"role": "tool", "content": "7", "tool_call_id": "1"},
    ]
    job.datasets = {
        "A": [
            {"messages": [SYSTEM, {"role": "user", "content": "w1"}], "tools": [{"type": "function"}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "w2"}]}]},
            {"messages": [{"role": "user", "content": "w3"}, *tool_use]},
            {"messages": [{"role": "user", "content": [PICTURE]}]},
        ]
    }
    await job.use(server).generate()
    job.finish()
    output = tmp_path / "chat.jsonl"
    converted = convert(job.output, Target.SPECFORGE_CHAT, output)
    assert (converted.rows, converted.left_out) == (3, {"a turn has parts that are not text": 1})
    rows = sorted(load_json(output), key=lambda row: len(row["conversations"]))
    asked, system, called = ([turn["role"] for turn in row["conversations"]] for row in rows)
    assert (asked, system) == (["user", "assistant"], ["system", "user", "assistant"])
    assert called == ["user", "assistant", "tool", "assistant"]
    assert rows[0]["conversations"][0]["content"] == "w2"
    assert json.loads(rows[1]["tools"]) == [{"type": "function"}]
    assert json.loads(rows[2]["conversations"][1]["tool_calls"]) == call
    answers = {record["content"] for record in job.lines()}
    assert {row["conversations"][-1]["content"] for row in rows} <= answers


async def test_answers_that_nobody_trains_on_are_left_out_and_counted(finished: Job, tmp_path: Path) -> None:
    finished.compression = "None"
    path = finished.output / "A" / "raw_responses.jsonl"
    record = Record.model_validate(finished.lines()[0]).model_copy(
        update={"id": "f" * 32, "status": RecordStatus.MALFORMED}
    )
    path.write_text(record.model_dump_json() + "\n")
    finished.finish()
    converted = convert(finished.output, Target.SPECFORGE, tmp_path / "rows.jsonl", dataset="A")
    assert (converted.rows, converted.left_out) == (8, {"malformed": 1})
    assert convert(finished.output, Target.PARQUET, tmp_path / "rows.parquet", dataset="A").rows == 9


def test_parquet_and_a_dataset_hold_every_field(finished: Job, tmp_path: Path) -> None:
    convert(finished.output, Target.PARQUET, tmp_path / "rows.parquet")
    convert(finished.output, Target.DATASET, tmp_path / "rows")
    table = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert list(datasets.load_from_disk(str(tmp_path / "rows"))) == table
    records = [*finished.lines(dataset="A"), *finished.lines(dataset="B")]
    json_text = {
        name
        for name, value in table[0].items()
        if isinstance(records[0][name], (dict, list)) and isinstance(value, str)
    }
    assert json_text == {"messages", "chat_template_kwargs", "sampling", "model"}
    read = [
        {name: json.loads(value) if name in json_text else value for name, value in row.items()}
        for row in table
    ]
    assert read == records
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("rows")) == [
        "rows",
        "rows.parquet",
    ]


def test_what_cannot_be_converted_is_refused_and_leaves_nothing(finished: Job, tmp_path: Path) -> None:
    there = tmp_path / "there.jsonl"
    there.write_text("mine")
    records = finished.output / "B" / "raw_responses.jsonl.zst"
    for output, dataset, message in (
        (there, None, "there.jsonl is there already"),
        (tmp_path / "rows.json", None, "so that it ends with .jsonl"),
        (tmp_path / "new.jsonl", "C", "has no dataset C; it has A, B"),
    ):
        with pytest.raises(JobRefusedError, match=message):
            convert(finished.output, Target.SPECFORGE, output, dataset)
    records.write_bytes(records.read_bytes() * 2)
    with pytest.raises(JobRefusedError, match=r"was changed since manifest\.json was written"):
        convert(finished.output, Target.SPECFORGE, tmp_path / "new.jsonl")
    (finished.output / "manifest.json").unlink()
    with pytest.raises(JobRefusedError, match="give the output folder of a finished run"):
        convert(finished.output, Target.SPECFORGE, tmp_path / "new.jsonl")
    assert there.read_text() == "mine"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".convert", "new", "rows"))]


def test_the_command_offers_every_format() -> None:
    assert set(CONVERSIONS) == set(Target)


def test_the_command_says_how_many_rows_there_are(
    finished: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = Namespace(folder=finished.output, to="speculators", output=tmp_path / "rows.jsonl", dataset="B")
    assert command.run(args) == 0
    assert "4 rows in" in capsys.readouterr().out
    with pytest.raises(CliError, match="is there already"):
        command.run(args)
