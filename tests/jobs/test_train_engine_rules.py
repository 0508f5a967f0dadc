"""A drafter's folder under the loading rules of each engine: nothing is passed over, no place stays empty."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from draftmill_jobs.train.export import Trained, export_flat
from draftmill_jobs.train.layers import DraftEngine, layer_ids_for
from tests.support.drafting import make_bench, small_config
from tests.support.engine_loaders import Loaded, load, places, read

STATES = (2, 4, 5)
SHAPES: list[dict[str, object]] = [
    {},
    {"fc_norm": True, "norm_output": True},
    {"norm_before_fc": True},
    {"states": 2},
    {"target_hidden_size": 24},
    {"draft_vocab_size": 50},
]


def loaded(
    engine: DraftEngine, folder: Path, changes: dict[str, object], *, deepseek: bool = False
) -> tuple[Trained, Path, Loaded]:
    bench = make_bench(small_config(**changes), dtype=torch.float32)
    states = STATES[: bench.config.states]
    ids = {each: layer_ids_for(each, states, target_is_deepseek=deepseek) for each in DraftEngine}
    trained = Trained(bench.config, bench.vocabulary, bench.drafter.state_dict(), ids)
    made = export_flat(trained, folder)[engine]
    return trained, made, load(engine, made, target_is_deepseek=deepseek)


@pytest.mark.parametrize("engine", DraftEngine)
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_every_place_gets_a_tensor_of_its_shape_and_every_tensor_has_a_place(
    tmp_path: Path, engine: DraftEngine, changes: dict[str, object]
) -> None:
    _, folder, found = loaded(engine, tmp_path / "drafter", changes)

    assert found.filled == places(read(folder))
    assert not found.passed_over


@pytest.mark.parametrize("engine", DraftEngine)
@pytest.mark.parametrize("said", [20, 50])
def test_a_draft_id_means_the_same_token_in_the_engine_as_in_the_training(
    tmp_path: Path, engine: DraftEngine, said: int
) -> None:
    trained, _, found = loaded(engine, tmp_path / "drafter", {"draft_vocab_size": said})

    assert (found.target_ids or list(range(said))) == trained.vocabulary.target_ids.tolist()


@pytest.mark.parametrize("engine", DraftEngine)
@pytest.mark.parametrize("deepseek", [False, True])
def test_the_engine_gives_it_the_states_that_it_was_trained_on(
    tmp_path: Path, engine: DraftEngine, deepseek: bool
) -> None:
    _, _, found = loaded(engine, tmp_path / "drafter", {}, deepseek=deepseek)

    assert found.layers == list(STATES)


@pytest.mark.parametrize("engine", DraftEngine)
def test_the_config_says_what_engines_would_otherwise_take_from_defaults_of_their_own(
    tmp_path: Path, engine: DraftEngine
) -> None:
    _, folder, _ = loaded(engine, tmp_path / "drafter", {})
    config = read(folder)

    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["model_type"], config["num_hidden_layers"]) == ("llama", 1)
    assert config["tie_word_embeddings"] is False
    assert {"draft_vocab_size", "head_dim", "rope_theta", "rope_parameters", "eagle_config"} <= config.keys()
