"""What an extractor's config written by hand is refused for, beside wrong values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from draftmill_api.extractjob import ExtractJobConfig


def config(**fields: Any) -> ExtractJobConfig:
    return ExtractJobConfig.model_validate(
        {
            "run": {"kind": "ExtractRun"},
            "model": {"name": "m", "path": "/models/m"},
            "records": {"path": "/data/records"},
            "output": {"path": "/data/states"},
        }
        | fields
    )


def endpoint(name: str, engine: str) -> dict[str, str]:
    return {"name": name, "url": "http://127.0.0.1:8000", "engine": engine}


def test_an_endpoint_of_an_engine_that_writes_no_states_is_refused_by_its_name() -> None:
    with pytest.raises(ValidationError, match="endpoint 'b' is not of engine VLLM: no other engine writes"):
        config(endpoints=[endpoint("a", "VLLM"), endpoint("b", "SGLang")])


def test_two_endpoints_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="two endpoints have the name 'a'"):
        config(endpoints=[endpoint("a", "VLLM"), endpoint("a", "VLLM")])


@pytest.mark.parametrize("layers", [{}, {"ids": [2], "default": True}, {"ids": [2], "fromDrafter": "/d"}])
def test_layers_are_chosen_in_one_way(layers: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a choice of layers needs exactly one of ids, default and "):
        config(layers=layers)


def test_no_default_layers_does_not_mean_the_default_ones() -> None:
    with pytest.raises(ValidationError, match=r"layers\.default is true or left out"):
        config(layers={"default": False})


def test_job_images_of_before_are_told_nothing_that_they_do_not_know() -> None:
    assert "outageTimeout" not in config().to_json()
    assert config(outageTimeout="5m").to_json()["outageTimeout"] == "5m"
