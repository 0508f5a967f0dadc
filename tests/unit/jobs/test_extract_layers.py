"""Layer ids.

Reported by users of other tools: defaults are taken when a drafter's config names no ids; ids are off by one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.extractjob import JobLayers
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.layers import layer_ids


def drafter(folder: Path, config: Any) -> JobLayers:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return JobLayers(from_drafter=str(folder))


def test_the_default_of_a_model_of_61_layers_is_what_its_drafters_use() -> None:
    assert layer_ids(JobLayers(default=True), 61) == [2, 30, 58, 61]


def test_the_number_of_layers_is_always_added() -> None:
    assert layer_ids(JobLayers(ids=[0, 5]), 8) == [0, 5, 8]


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([2, 8], r"layers.ids has \[2, 8\]: 8 is out of range; in the \"entering layer\" convention"),
        ([3, 2], "does not increase"),
        ([2, 2], "does not increase"),
    ],
)
def test_ids_that_name_no_layers_are_refused(ids: list[int], sentence: str) -> None:
    with pytest.raises(JobRefusedError, match=sentence) as refused:
        layer_ids(JobLayers(ids=ids), 8)

    assert "entering layer" in refused.value.message


def test_a_model_too_small_for_the_default_is_refused() -> None:
    with pytest.raises(JobRefusedError, match=r"the default for a model of 4 layers has \[2, 2, 1\]"):
        layer_ids(JobLayers(default=True), 4)


@pytest.mark.parametrize(
    "config",
    [
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}},
        {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    ],
    ids=["flat", "speculators"],
)
def test_a_drafters_ids_are_taken_from_its_config(tmp_path: Path, config: Any) -> None:
    assert layer_ids(drafter(tmp_path / "drafter", config), 61) == [2, 30, 58, 61]


@pytest.mark.parametrize("config", [{}, {"eagle_config": {}}, {"eagle_aux_hidden_state_layer_ids": []}, []])
def test_a_drafter_that_names_no_ids_is_refused_and_no_default_taken(tmp_path: Path, config: Any) -> None:
    """Reported failure 1 (vllm-project/vllm#50170): defaults were taken for ids that are missing."""
    with pytest.raises(JobRefusedError, match="has no list of numbers at eagle_aux_hidden_state_layer_ids"):
        layer_ids(drafter(tmp_path / "drafter", config), 61)


def test_a_drafter_with_the_defaults_of_the_other_convention_is_refused_with_the_same_layers_in_ours(
    tmp_path: Path,
) -> None:
    other = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}}

    with pytest.raises(
        JobRefusedError, match=r"\"output of layer\" convention; .* layers.ids: \[2, 30, 58\]"
    ):
        layer_ids(drafter(tmp_path / "drafter", other), 61)


def test_a_folder_that_is_no_drafter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobRefusedError, match=r"cannot read .*config.json"):
        layer_ids(JobLayers(from_drafter=str(tmp_path)), 61)
