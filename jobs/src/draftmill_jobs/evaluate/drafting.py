"""What servers count while they draft. Pure.

vLLM has counters of cycles and accepted tokens, by position too. SGLang says with each answer how often its
target checked drafted tokens, and in how many of these cycles it accepted none, one, two of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

_PREFIX: Final = "vllm:spec_decode_num_"
_CYCLES: Final = f"{_PREFIX}drafts_total"
_ACCEPTED: Final = f"{_PREFIX}accepted_tokens_total"
_BY_POSITION: Final = f"{_PREFIX}accepted_tokens_per_pos_total"
_HISTOGRAMS: Final = ("spec_correct_drafts_histogram", "spec_accept_histogram")  # newer and older SGLang


@dataclass(frozen=True, slots=True)
class Drafted:
    """Counts over draft cycles.

    Attributes:
        cycles: Draft cycles.
        accepted: Draft tokens that were accepted.
        by_position: Cycles in which the draft token of each position was accepted; empty where unknown.
    """

    cycles: int
    accepted: int
    by_position: tuple[int, ...] = ()

    def __add__(self, other: Drafted) -> Drafted:
        """Both."""
        places = zip_longest(self.by_position, other.by_position, fillvalue=0)
        return Drafted(
            self.cycles + other.cycles, self.accepted + other.accepted, tuple(a + b for a, b in places)
        )

    def __sub__(self, earlier: Drafted) -> Drafted:
        """What came since `earlier`."""
        places = zip_longest(self.by_position, earlier.by_position, fillvalue=0)
        return Drafted(
            self.cycles - earlier.cycles, self.accepted - earlier.accepted, tuple(a - b for a, b in places)
        )

    @property
    def length(self) -> float:
        """1 + accepted draft tokens / cycles, with the bonus token; 1 when there was no cycle."""
        return 1 + self.accepted / self.cycles if self.cycles else 1.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Of each position, the share of cycles in which its token was accepted."""
        return tuple(count / self.cycles if self.cycles else 0.0 for count in self.by_position)


def of_vllm(page: str) -> Drafted | None:
    """Its counters so far, summed over engines; None when it does not draft, or its page is garbled."""
    lines = [line for line in page.split("\n") if line.startswith(_PREFIX)]
    sums, places = dict[str, float](), dict[int, float]()
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                if sample.name == _BY_POSITION:
                    place = int(sample.labels["position"])
                    places[place] = places.get(place, 0.0) + sample.value
                else:
                    sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except (ValueError, IndexError, KeyError):
        return None
    if not all(math.isfinite(sums.get(name, math.nan)) for name in (_CYCLES, _ACCEPTED)):
        return None
    by_position = tuple(round(places.get(place, 0.0)) for place in range(max(places, default=-1) + 1))
    return Drafted(round(sums[_CYCLES]), round(sums[_ACCEPTED]), by_position)


def of_sglang(answers: Iterable[Mapping[str, Any]]) -> Drafted | None:
    """The sum over the `meta_info` of answers; None when it does not draft.

    An answer of a single token, which the prompt alone gives, took no cycle and tells nothing of them.
    Where an answer tells its cycles and not how many drafts each accepted, they follow from its length; then
    nothing is known by position.
    """
    drafting = [meta for meta in answers if "spec_verify_ct" in meta]
    if not drafting:
        return None
    total, histograms = Drafted(0, 0), [_histogram(meta) for meta in drafting]
    for meta, histogram in zip(drafting, histograms, strict=True):
        total = total + (_by_length(meta) if histogram is None else _by_histogram(histogram))
    return total if None not in histograms else replace(total, by_position=())


def _histogram(meta: Mapping[str, Any]) -> Sequence[int] | None:
    """How many cycles accepted 0, 1, 2, ... drafts."""
    return next((meta[name] for name in _HISTOGRAMS if meta.get(name)), None)


def _by_histogram(cycles: Sequence[int]) -> Drafted:
    accepted = sum(drafts * count for drafts, count in enumerate(cycles))
    return Drafted(sum(cycles), accepted, tuple(sum(cycles[place:]) for place in range(1, len(cycles))))


def _by_length(meta: Mapping[str, Any]) -> Drafted:
    """The first token comes from the prompt, and one of each cycle from the target."""
    cycles = int(meta["spec_verify_ct"])
    return Drafted(cycles, max(0, int(meta["completion_tokens"]) - 1 - cycles))
