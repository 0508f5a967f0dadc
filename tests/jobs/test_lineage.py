"""From records to a drafter with the real steps, and back again by the hashes of their manifests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_cli.main import main
from draftmill_jobs.lineage import Link, trace
from tests.support.extract_job import ExtractJob
from tests.support.tiny_llama import make_tiny_llama

WHOLE = ["drafter", "hidden states", "answers"]


@dataclass(frozen=True)
class Chain:
    """What the steps left: records, states and a drafter, each in a folder of its own."""

    folder: Path

    @property
    def records(self) -> Path:
        return self.folder / "extract" / "records"

    @property
    def states(self) -> Path:
        return self.folder / "extract" / "states"

    @property
    def run(self) -> Path:
        return self.folder / "drafter"

    @property
    def drafter(self) -> Path:
        return self.run / "drafter" / "vllm"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The steps, as on a laptop."""
    folder = tmp_path_factory.mktemp("chain")
    target = make_tiny_llama(folder / "tiny")
    extract = ExtractJob(folder / "extract", target).add_many(24)
    for step in ("plan", "extract", "finish"):
        assert main([step, "--config", str(extract.write())]) == ExitCode.DONE
    chain = Chain(folder)
    config = {
        "run": {"kind": "DrafterTrain", "name": "tiny-drafter"},
        "target": {"name": "tiny", "path": str(target)},
        "store": {"path": str(chain.states)},
        "output": {"path": str(chain.run)},
        "scratch": {"draftVocabSize": 200},
        "training": {"epochs": 1, "tttLength": 2, "tokensPerBatch": 128, "precision": "Float32"},
        "heldOutPercent": 20,
    }
    (folder / "train.yaml").write_text(json.dumps(config))
    for step in ("plan", "train", "finish"):
        assert main([step, "--config", str(folder / "train.yaml")]) == ExitCode.DONE
    return chain


@pytest.fixture
def chain(made: Chain, tmp_path: Path) -> Chain:
    """A copy, which a test breaks; its manifests name the original."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(made.folder, copy)
    return Chain(copy)


def links(folder: Path, *roots: Path) -> list[Link]:
    return list(trace(folder, roots))


@pytest.mark.parametrize("start", ["", "drafter", "drafter/vllm", "drafter/sglang"])
def test_a_drafter_is_traced_to_the_answers_from_any_of_its_folders(made: Chain, start: str) -> None:
    found = links(made.run / start)

    assert [link.what for link in found] == WHOLE
    assert [link.fault for link in found] == ["", "", ""]
    assert "DrafterTrain tiny-drafter for tiny" in found[0].facts
    assert "24 rows" in found[1].facts


def without_the_weights(chain: Chain) -> None:
    (chain.drafter / "model.safetensors").unlink()


def with_another_config(chain: Chain) -> None:
    (chain.drafter / "config.json").write_text("{}")


def without_a_manifest(chain: Chain) -> None:
    (chain.run / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (without_the_weights, "model.safetensors is not there"),
        (with_another_config, "config.json has the sha256"),
        (without_a_manifest, "no manifest.json of a drafter there or above"),
    ],
)
def test_a_drafter_that_is_not_the_one_of_its_manifest_breaks_the_chain_at_once(
    chain: Chain, harm: Callable[[Chain], None], words: str
) -> None:
    harm(chain)
    (found,) = links(chain.drafter)

    assert found.what == "drafter"
    assert words in found.fault


def test_states_that_were_made_anew_break_the_chain_there(made: Chain, chain: Chain) -> None:
    point_to(chain, made)
    manifest = chain.states / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    found = links(chain.run)

    assert [link.what for link in found] == WHOLE[:2]
    assert "and what was made of it names" in found[-1].fault


def test_a_shard_that_is_gone_breaks_the_chain_there(made: Chain, chain: Chain) -> None:
    point_to(chain, made)
    (shard,) = chain.states.glob("*.safetensors")
    shard.unlink()

    assert "is not the shard of" in links(chain.run)[-1].fault


def test_answers_that_were_changed_break_the_chain_there(made: Chain) -> None:
    (records,) = made.records.glob("*/raw_responses.jsonl")
    before = records.read_bytes()
    records.write_bytes(before + before.splitlines(keepends=True)[0])
    try:
        found = links(made.run)
    finally:
        records.write_bytes(before)

    assert [link.what for link in found] == WHOLE
    assert "they were changed since" in found[-1].fault


def test_a_volume_that_is_mounted_elsewhere_is_found_below_its_root(made: Chain, chain: Chain) -> None:
    """In a pod manifests name paths on the volume; here it is mounted somewhere else."""
    rewrite(chain.run / "manifest.json", str(made.folder), "nowhere")
    assert "say where its volume is mounted with --root" in links(chain.run)[-1].fault

    rewrite(chain.run / "manifest.json", "nowhere/", "/data/")
    assert links(chain.run, chain.folder)[1].place == str(chain.states)


def test_the_command_says_where_the_chain_breaks(
    made: Chain, chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lineage", str(made.drafter)]) == 0
    without_the_weights(chain)
    assert main(["lineage", str(chain.drafter)]) == 1
    said = capsys.readouterr().out.splitlines()

    assert "The chain is whole: every artefact is the one that the next was made of." in said
    assert said[-1] == "The chain breaks at the drafter."


def point_to(chain: Chain, made: Chain) -> None:
    """Makes the drafter name the copy of the states."""
    rewrite(chain.run / "manifest.json", str(made.folder), str(chain.folder))


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
