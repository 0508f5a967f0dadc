"""What a job config written by hand is refused for, beside wrong values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from draftmill_api.jobconfig import SynthJobConfig


def config(datasets: list[str], endpoints: list[str]) -> dict[str, Any]:
    source = {"file": {"path": "/data/prompts.jsonl"}}
    return {
        "model": {"name": "m", "path": "/models/m"},
        "output": {"path": "/data/out"},
        "datasets": [{"name": name, "source": source} for name in datasets],
        "endpoints": [
            {"name": name, "url": f"http://127.0.0.1:{8000 + index}", "engine": "VLLM"}
            for index, name in enumerate(endpoints)
        ],
    }


@pytest.mark.parametrize(
    ("datasets", "endpoints", "place", "sentence"),
    [
        (["A"], ["s0", "s1", "s0"], "endpoints", "two endpoints have the name 's0'; each needs its own"),
        (["A", "B", "B"], ["s0"], "datasets", "two datasets have the name 'B'; each needs its own"),
    ],
)
def test_two_of_one_name_are_refused_by_that_name(
    datasets: list[str], endpoints: list[str], place: str, sentence: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        SynthJobConfig.model_validate(config(datasets, endpoints))
    (error,) = refused.value.errors()
    assert error["loc"] == (place,)
    assert sentence in error["msg"]


def test_different_names_are_accepted() -> None:
    accepted = SynthJobConfig.model_validate(config(["A", "B"], ["s0", "s1"]))
    assert [endpoint.name for endpoint in accepted.endpoints] == ["s0", "s1"]


def test_a_cap_with_short_prompts_below_the_cap_without_is_refused() -> None:
    raw = config(["A"], []) | {"generation": {"concurrency": 128, "concurrencyShort": 127}}
    with pytest.raises(ValidationError, match="concurrencyShort lets short prompts go beyond"):
        SynthJobConfig.model_validate(raw)
