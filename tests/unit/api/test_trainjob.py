"""What a training is told, and what it takes where nothing is said."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from draftmill_api.base import NonNegativeNumber, PositiveNumber
from draftmill_api.trainjob import TrainJobConfig

SCRATCH = {"scratch": {"draftVocabSize": 32000}}
INIT = {"init": {"path": "/models/eagle3"}}


def config(start: dict[str, Any], **training: Any) -> TrainJobConfig:
    return TrainJobConfig.model_validate(
        {
            "run": {"kind": "DrafterTrain"},
            "target": {"name": "smol", "path": "/models/smol"},
            "store": {"path": "/data/states"},
            "output": {"path": "/data/drafter"},
            "training": training,
        }
        | start
    )


@pytest.mark.parametrize(("start", "settings"), [(SCRATCH, (1e-4, 7, 0.8)), (INIT, (2e-5, 4, 1.0))])
def test_what_is_left_out_is_that_of_the_start(
    start: dict[str, Any], settings: tuple[float, int, float]
) -> None:
    told = config(start)
    assert (told.learning_rate, told.ttt_length, told.ttt_decay) == settings


@pytest.mark.parametrize("start", [SCRATCH, INIT])
def test_what_is_said_holds_whatever_the_start(start: dict[str, Any]) -> None:
    told = config(start, learningRate="3e-5", tttLength=5, tttDecay=0.9)
    assert (told.learning_rate, told.ttt_length, told.ttt_decay) == (3e-5, 5, 0.9)


@pytest.mark.parametrize("start", [{}, SCRATCH | INIT])
def test_a_training_has_one_start(start: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a training needs exactly one of init and scratch"):
        config(start)


@pytest.mark.parametrize(
    ("written", "kept"), [(1e-7, "0.0000001"), ("1e-4", "1e-4"), (0.5, "0.5"), (3, "3"), (2.0, "2")]
)
def test_a_small_number_in_a_config_file_keeps_its_value(written: object, kept: str) -> None:
    assert TypeAdapter(PositiveNumber).validate_python(written) == kept


@pytest.mark.parametrize("written", ["-1", "1e", "e-4", "nan", True])
def test_what_is_no_number_that_a_setting_can_have_is_refused(written: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(NonNegativeNumber).validate_python(written)
