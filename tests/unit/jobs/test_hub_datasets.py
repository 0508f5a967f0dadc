"""Datasets of the hub: one commit for as long as a folder of answers lives, with or without the hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants
import pytest

from draftmill_api.jobconfig import JobSource
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.prompts.sources.base import Source
from draftmill_jobs.prompts.sources.opening import open_source
from draftmill_jobs.prompts.sources.pinning import read_pin
from tests.support.hub_server import Files, Hub, hub_server

REPO = "org/chats"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the libraries of this process ask, with an empty cache."""
    with hub_server() as hub:
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache" / "hub"))
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache" / "datasets")
        yield hub


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Any:
    def go() -> None:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)

    return go


def files(words: str, count: int = 3) -> Files:
    lines = (json.dumps({"prompt": f"{words} {number}"}) + "\n" for number in range(count))
    return {"train.jsonl": "".join(lines).encode()}


def opened(answers: Path, **fields: str) -> Source:
    return open_source(JobSource.model_validate({"huggingFace": {"repo": REPO, **fields}}), answers)


def prompts_of(source: Source) -> list[str]:
    return [row["prompt"] for row in source.rows()]


def commit_of(answers: Path) -> str:
    pin = read_pin(answers)
    assert pin is not None
    return pin.commit


def test_a_branch_that_moves_does_not_mix_two_commits(hub: Hub, tmp_path: Path) -> None:
    first = hub.push(REPO, files("old"))
    assert prompts_of(opened(tmp_path / "A")) == ["old 0", "old 1", "old 2"]
    assert commit_of(tmp_path / "A") == first
    second = hub.push(REPO, files("new"))
    hub.is_down = True
    assert prompts_of(opened(tmp_path / "A")) == ["old 0", "old 1", "old 2"], "from the files, asking nobody"
    hub.is_down = False
    assert prompts_of(opened(tmp_path / "B")) == ["new 0", "new 1", "new 2"], "another folder begins anew"
    shutil.rmtree(tmp_path / "cache")
    assert prompts_of(opened(tmp_path / "A")) == ["old 0", "old 1", "old 2"], "loaded again, the same"
    assert prompts_of(opened(tmp_path / "A", revision=second)) == ["new 0", "new 1", "new 2"], "when asked to"
    assert commit_of(tmp_path / "A") == second


def test_rows_are_read_by_position_too(hub: Hub, tmp_path: Path) -> None:
    hub.push(REPO, files("row", 200))
    source = opened(tmp_path / "A")
    assert len(list(source.rows())) == 200
    positions = [199, *range(150), 0]
    with source.indexed(tmp_path) as indexed:
        assert [row["prompt"] for row in indexed.rows_at(positions)] == [f"row {at}" for at in positions]


def test_a_part_of_a_split_is_pinned_too(hub: Hub, tmp_path: Path) -> None:
    hub.push(REPO, files("old"))
    assert prompts_of(opened(tmp_path / "A", split="train[:2]")) == ["old 0", "old 1"]
    hub.push(REPO, files("new"))
    assert prompts_of(opened(tmp_path / "A", split="train[:2]")) == ["old 0", "old 1"]


def test_without_the_hub_its_cache_serves_and_only_the_commit_that_is_wanted(
    hub: Hub, tmp_path: Path, offline: Any
) -> None:
    first = hub.push(REPO, files("old"))
    opened(tmp_path / "A", revision=first)
    second = hub.push(REPO, files("new"))
    opened(tmp_path / "B")
    shutil.rmtree(tmp_path / "cache" / "datasets" / "org___chats" / "default" / "0.0.0" / first)
    offline()
    assert prompts_of(opened(tmp_path / "C")) == ["new 0", "new 1", "new 2"]
    assert commit_of(tmp_path / "C") == second
    for answers, fields in ((tmp_path / "A", {"revision": first}), (tmp_path / "D", {"revision": first})):
        with pytest.raises(JobRefusedError, match=f"belong to commit {first}, and only {second}") as refused:
            opened(answers, **fields)
        assert refused.value.reason == "PromptsChanged"
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(JobRefusedError, match="is not in the cache, and HF_HUB_OFFLINE is set"):
        opened(tmp_path / "E", revision="main")


REFUSALS = {
    "no such dataset": ({"repo": "org/none"}, "cannot load dataset org/none, split train, from the hub"),
    "no such revision": ({"revision": "v9"}, "cannot load dataset org/chats, split train, revision v9"),
    "no such split": ({"split": "test"}, "cannot load dataset org/chats, split test"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_the_hub_does_not_have_is_refused_though_the_cache_has_something_else(
    hub: Hub, tmp_path: Path, what: str
) -> None:
    hub.push(REPO, files("old"))
    opened(tmp_path / "A")
    fields, message = REFUSALS[what]
    with pytest.raises(JobRefusedError, match=message) as refused:
        opened(tmp_path / "B", **fields)
    assert refused.value.reason == "PromptsNotFound"


def test_a_hub_that_does_not_answer_is_asked_again_by_another_attempt(hub: Hub, tmp_path: Path) -> None:
    hub.is_down = True
    with pytest.raises(JobFailedError, match="is not in the cache, and the hub does not answer"):
        opened(tmp_path / "A", revision="main")


def test_a_local_copy_of_a_dataset_is_no_commit(tmp_path: Path, hub: Hub) -> None:
    folder = tmp_path / "org" / "chats"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_bytes(files("old")["train.jsonl"])
    source = opened(tmp_path / "A", repo=str(folder))
    assert prompts_of(source) == ["old 0", "old 1", "old 2"]
    assert read_pin(tmp_path / "A") is None


def test_a_folder_that_save_to_disk_wrote_is_refused_with_a_remedy(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"prompt": ["a", "b"]}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(JobRefusedError, match=r"saved was written by save_to_disk, .* write it as Parquet"):
        opened(tmp_path / "A", repo=str(tmp_path / "saved"))
