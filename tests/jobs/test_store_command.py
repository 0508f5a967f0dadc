"""`draftmill store`: what it finds, and how it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from datasets import load_from_disk
from safetensors.torch import load_file

from draftmill_api.record import RecordStatus
from draftmill_api.store import RowSelection, StoreBinding, StoreLine, StoreManifest, StoreSource
from draftmill_api.v1alpha1.extractrun import SkippedRows, StateDtype
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_cli.main import main
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.shared.artefacts import MANIFEST_FILE, write_json
from draftmill_jobs.store import Check, Store, audit_store, write_index
from tests.support.headed_model import HIDDEN, make_headed_model
from tests.support.states import RUN, binding, row, written
from tests.support.tiny_model import VOCABULARY

ROWS = [row(number) for number in range(10)]


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    """A store with index and manifest."""
    return _completed(written(tmp_path / "store", ROWS), binding())


def _completed(folder: Path, bound: StoreBinding) -> Path:
    write_index(folder)
    audit = audit_store(folder)
    assert audit.index is not None
    manifest = StoreManifest(
        run=RUN,
        model=ModelFacts(
            fingerprint=bound.model_fingerprint,
            architecture="LlamaForCausalLM",
            layers=8,
            hidden_size=bound.hidden_size,
            vocabulary_size=len(VOCABULARY),
            think_family="none",
        ),
        model_name="tiny",
        tokenizer_sha256="0" * 64,
        chat_template_sha256="0" * 64,
        binding=bound,
        source=StoreSource(path="/input", sha256="1" * 64),
        selection=RowSelection(statuses=[RecordStatus.OK]),
        rows=len(audit.rows),
        tokens=audit.tokens,
        bytes=audit.bytes,
        cut_rows=0,
        cut_tokens=0,
        skipped=SkippedRows(),
        quarantined={},
        index=audit.index,
        shards=audit.shards,
    )
    write_json(folder / MANIFEST_FILE, manifest)
    return folder


def _lines(folder: Path) -> list[StoreLine]:
    return [
        StoreLine.model_validate_json(line) for line in (folder / "index.jsonl").read_bytes().splitlines()
    ]


def _verify(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    code = main(["store", "verify", str(folder), *flags])
    return code, capsys.readouterr().out


def test_a_whole_store_is_well(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _verify(complete, capsys)

    assert code == 0
    assert said.startswith("10 rows in")
    assert said.endswith("All is well.\n")


def test_a_store_whose_run_was_not_finished_is_not_well(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (complete / "manifest.json").unlink()

    code, said = _verify(complete, capsys)

    assert code == 1
    assert "manifest.json: missing, so the store is not complete" in said
    assert said.endswith("Not well: 1 fault.\n")


def test_what_there_is_of_an_unfinished_store_can_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "store", ROWS)

    code, said = _verify(folder, capsys, "--incomplete")
    assert (code, said.splitlines()[-1]) == (0, "All is well.")

    shard = min(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-10])
    code, said = _verify(folder, capsys, "--incomplete")
    assert code == 1
    assert f"{shard.name}: it has" in said


def test_one_flipped_bit_is_found_in_its_row(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = _lines(complete)[4]
    shard = complete / line.shard
    content = bytearray(shard.read_bytes())
    content[line.offset + 77] ^= 0x10
    shard.write_bytes(content)

    code, said = _verify(complete, capsys)

    assert code == 1
    assert f"{line.shard}: row {line.dataset}/{line.id} has changed since it was written" in said
    assert f"{line.shard}: changed since manifest.json was written" in said


def test_a_flipped_bit_of_a_loss_mask_is_found_in_its_row(
    complete: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = max(_lines(complete), key=lambda line: (line.shard, line.offset))
    shard = complete / line.shard
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")

    code, said = _verify(complete, capsys)

    assert code == 1
    assert f"{line.shard}: row {line.dataset}/{line.id} has changed" in said


@pytest.mark.parametrize("flags", [[], ["--headers"]])
def test_a_missing_shard_is_named_with_its_first_row(
    complete: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    line = _lines(complete)[0]
    (complete / line.shard).unlink()

    code, said = _verify(complete, capsys, *flags)

    assert code == 1
    assert f"{line.shard}: missing, with" in said
    assert f"{line.dataset}/{line.id}" in said


@pytest.mark.parametrize("flags", [[], ["--headers"]])
def test_a_cut_shard_is_named_with_its_size(
    complete: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    line = _lines(complete)[0]
    shard = complete / line.shard
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-10])

    code, said = _verify(complete, capsys, *flags)

    assert code == 1
    assert f"{line.shard}: it has {size - 10} bytes, and its header names {size}" in said


def test_a_row_in_two_shards_is_named_with_both(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_, last = _lines(complete)
    assert first.shard != last.shard
    double = json.loads(last.model_dump_json(exclude_none=True)) | {"id": first.id}
    for name in ("index.jsonl", "index-w0.jsonl"):
        with (complete / name).open("a") as index:
            index.write(json.dumps(double) + "\n")

    code, said = _verify(complete, capsys, "--headers")

    assert code == 1
    assert f"{last.shard}: row B1/{first.id} is there, and in {first.shard} too" in said


def test_an_index_that_lost_a_line_is_found(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (complete / "index.jsonl").read_text().splitlines(keepends=True)
    lost = StoreLine.model_validate_json(lines[3])
    (complete / "index.jsonl").write_text("".join(lines[:3] + lines[4:]))

    code, said = _verify(complete, capsys, "--headers")

    assert code == 1
    assert "manifest.json: rows: 10 there, 9 in index.jsonl" in said
    assert f"{lost.shard}: row B1/{lost.id} differs between index.jsonl and its worker's part of it" in said


def test_a_shard_that_no_index_names_is_found(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (complete / "states-w7-0.safetensors").write_bytes((complete / "states-w0-0.safetensors").read_bytes())

    code, said = _verify(complete, capsys, "--headers")

    assert code == 1
    assert "states-w7-0.safetensors: not in the index" in said


def test_a_folder_that_is_no_store_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "verify", str(tmp_path)]) == 1

    assert "there is no store in" in capsys.readouterr().err


def test_stat_says_what_a_store_holds(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "stat", str(complete)]) == 0

    said = capsys.readouterr().out
    assert "[2, 3, 5, 8], entering layer; the last before the final norm" in said
    assert "BFloat16, width 32" in said
    assert "by VLLM; in BFloat16 10 rows" in said
    tokens = sum(len(each.token_ids) for each in ROWS)
    assert f"{tokens:,}, longest row" in said


def test_head_shows_the_first_rows(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "head", str(complete), "--count", "3"]) == 0

    heading, *rows = capsys.readouterr().out.splitlines()
    assert "|LAYER 8|" in heading
    assert [each.split()[0] for each in rows] == [f"B1/{line.id}" for line in _lines(complete)[:3]]


def test_an_export_for_speculators_has_its_layout(complete: Path, tmp_path: Path) -> None:
    output = tmp_path / "export"

    assert main(["store", "export", str(complete), "--format", "speculators", "--output", str(output)]) == 0

    rows = load_from_disk(output)
    with Store.open(complete, check=Check.HEADERS) as store:
        assert len(rows) == len(store)
        for index, each in enumerate(store):
            states = load_file(output / "hidden_states" / f"hs_{index}.safetensors")
            assert torch.equal(states["hidden_states"], each.states())
            assert torch.equal(states["token_ids"], rows[index]["input_ids"])
            assert rows[index]["loss_mask"].tolist() == each.loss_mask.tolist()
            assert int(rows[index]["seq_len"]) == each.line.tokens
        frequencies = torch.load(output / "token_freq.pt", weights_only=True)
        assert sum(frequencies.values()) == sum(int(each.loss_mask.sum()) for each in store)


def test_float8_states_are_exported_as_bfloat16(tmp_path: Path) -> None:
    written(tmp_path / "store", ROWS, binding=binding(StateDtype.FLOAT8))
    arguments = ["--format", "speculators", "--output", str(tmp_path / "export")]

    assert main(["store", "export", str(tmp_path / "store"), *arguments]) == 0

    with Store.open(tmp_path / "store", check=Check.HEADERS) as store:
        states = load_file(tmp_path / "export" / "hidden_states" / "hs_0.safetensors")["hidden_states"]
        assert torch.equal(states, torch.from_numpy(store[0].values()).bfloat16())


def test_an_export_for_specforge_is_normed_by_the_target_itself(tmp_path: Path) -> None:
    model = make_headed_model(tmp_path / "model")
    bound = binding(hidden_size=HIDDEN, model_fingerprint=fingerprint(model))
    rows = [row(number, hidden=HIDDEN) for number in range(3)]
    folder = _completed(written(tmp_path / "store", rows, binding=bound), bound)
    arguments = ["--format", "specforge", "--output", str(tmp_path / "export"), "--model", str(model)]

    assert main(["store", "export", str(folder), *arguments]) == 0

    weight = load_file(model / "model.safetensors")["model.norm.weight"]
    with Store.open(folder, check=Check.HEADERS) as store:
        for index, each in enumerate(store):
            found = torch.load(tmp_path / "export" / "rows_0-2000" / f"data_{index}.ckpt", weights_only=True)
            expected = torch.nn.functional.rms_norm(each.states()[:, -1].float(), (HIDDEN,), weight, 1e-6)
            assert found["hidden_state"].dtype == torch.bfloat16
            torch.testing.assert_close(found["hidden_state"][0].float(), expected, rtol=2**-7, atol=1e-6)


def test_an_export_for_specforge_refuses_another_model(
    complete: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_headed_model(tmp_path / "model")
    arguments = [
        "store",
        "export",
        str(complete),
        "--format",
        "specforge",
        "--output",
        str(tmp_path / "export"),
    ]

    assert main(arguments) == 1
    assert "give the target's --model" in capsys.readouterr().err
    assert main([*arguments, "--model", str(model)]) == 1
    assert f"the states are of a model with fingerprint {'f' * 64}; that of" in capsys.readouterr().err


def test_an_export_never_mixes_with_what_is_there(
    complete: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["store", "export", str(complete), "--format", "speculators", "--output", str(tmp_path)]

    assert main(arguments) == 1

    assert "is not empty" in capsys.readouterr().err
