"""What answers look like, as `summary.json` tells it.

Public failure 33 (vllm#47349, vllm#31690): a cache that went wrong made answers short, or repeat themselves
until the limit; nobody was told.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from draftmill_api.manifest import MedianFall
from draftmill_jobs.finish.quality import QualityCount, has_repeated_tail
from draftmill_jobs.shared.medians import WINDOW, MedianWatch

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def record(ids: list[int], *, asked: float = 0.0, seconds: float = 1.0, **fields: Any) -> dict[str, Any]:
    usual = {
        "created": (MOMENT + timedelta(seconds=asked + seconds)).isoformat().replace("+00:00", "Z"),
        "latency_s": seconds,
        "status": "ok",
        "think": "none",
        "reasoning": None,
        "content": "An answer.",
        "text": "An answer.",
    }
    return {**usual, "output_ids": ids, **fields}


def test_lengths_have_a_mean_percentiles_and_a_histogram() -> None:
    counted = QualityCount()
    for length in range(1, 101):
        counted.add(record(list(range(length))))
    found = counted.result("A")
    assert (found.name, found.records, found.mean, found.longest) == ("A", 100, 50.5, 100)
    assert found.percentiles == {"10": 10, "50": 50, "90": 90, "99": 99}
    assert [(each.up_to, each.answers) for each in found.histogram] == [
        (1, 1),
        (2, 1),
        (4, 2),
        (8, 4),
        (16, 8),
        (32, 16),
        (64, 32),
        (128, 36),
    ]


def test_each_kind_of_answer_is_counted() -> None:
    counted = QualityCount()
    counted.add(record([1, 2, 3], status="truncated_reasoning", think="open_in_prompt", content=None))
    counted.add(record([1, 2, 4], status="malformed", text="cut \ufffd"))
    counted.add(record([1, 2, 4], reasoning=" ", content="\n", text=" \n"))
    counted.add(record([5] * 60))
    found = counted.result("A")
    assert (found.truncated, found.malformed, found.repeated_tails) == (1, 1, 1)
    assert (found.truncated_percent, found.repeated_tails_percent) == (25.0, 25.0)
    assert (found.empty, found.replacement_characters, found.duplicates) == (2, 1, 1)
    assert found.think == {"none": 3, "open_in_prompt": 1}


def test_a_dataset_without_records_has_no_figures() -> None:
    found = QualityCount().result("A")
    assert (found.records, found.percentiles, found.histogram, found.duplicates) == (0, {}, [], 0)
    assert (found.truncated_percent, found.repeated_tails_percent, found.median_falls) == (0, 0, [])


@pytest.mark.parametrize("period", [1, 2, 7, 64])
@pytest.mark.parametrize("stop", [[], [9999]])
def test_a_stretch_again_and_again_at_the_end_is_a_repeated_tail(period: int, stop: list[int]) -> None:
    stretch = random.Random(period).sample(range(1000), period)
    times = max(4, -(-48 // period))
    assert has_repeated_tail([*range(2000, 2100), *stretch * times, *stop])
    assert not has_repeated_tail([*range(2000, 2100), *stretch * 3, *stop])
    assert not has_repeated_tail([*stretch * times, *range(2000, 2010)])


def test_prose_has_no_repeated_tail() -> None:
    rng = random.Random(0)
    assert not any(has_repeated_tail([rng.randrange(50) for _ in range(300)]) for _ in range(500))


def test_public_failure_33_a_median_that_falls_by_half_is_found() -> None:
    """Public failure 33 (vllm#47349): answers collapse to some fifty tokens in the middle of a run."""
    rng, counted = random.Random(0), QualityCount()
    for number in range(6 * WINDOW):
        length = rng.randrange(40, 60) if number >= 3 * WINDOW else rng.randrange(400, 800)
        counted.add(record([rng.randrange(1000) for _ in range(length)], asked=number))
    (fall,) = counted.result("A").median_falls
    assert isinstance(fall, MedianFall)
    assert (fall.after, fall.before > 500, fall.then < 60) == (3 * WINDOW, True, True)


@pytest.mark.parametrize("begin", [[0.0, 0.0], [0.0, 1e6]], ids=["two workers", "a restart"])
def test_short_answers_that_come_first_when_a_worker_starts_are_no_fall(begin: list[float]) -> None:
    rng, counted, as_they_came = random.Random(0), QualityCount(), MedianWatch()
    falls = []
    for start in begin:
        lengths = [round(rng.lognormvariate(5, 1.5)) for _ in range(5 * WINDOW)]
        asked = [start + max(0, number - 3 * WINDOW) * 10.0 for number in range(len(lengths))]
        for came, length, since in sorted(
            (since + length, length, since) for since, length in zip(asked, lengths, strict=True)
        ):
            counted.add(record([rng.randrange(1000)] * length, asked=since, seconds=came - since))
            falls.append(as_they_came.add(length))
    assert any(falls), "they come in an order that looks like a fall"
    assert counted.result("A").median_falls == []


def test_lengths_that_grow_as_long_answers_come_are_no_fall() -> None:
    watch = MedianWatch()
    assert not any(watch.add(length) for length in range(10, 10 + 10 * WINDOW))
