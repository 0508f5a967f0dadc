"""What servers count while they draft. Pure.

vLLM has counters of cycles and accepted tokens, by position too. SGLang says with each answer how often its
target checked drafted tokens: a check brings the accepted ones and one of the target's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

_PREFIX: Final = "vllm:spec_decode_num_"
_CYCLES: Final = f"{_PREFIX}drafts_total"
_ACCEPTED: Final = f"{_PREFIX}accepted_tokens_total"
_BY_POSITION: Final = f"{_PREFIX}accepted_tokens_per_pos_total"


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

    def __sub__(self, earlier: Drafted) -> Drafted:
        """What came since `earlier`."""
        places = max(len(self.by_position), len(earlier.by_position))
        now, then = (
            counts + (0,) * (places - len(counts)) for counts in (self.by_position, earlier.by_position)
        )
        return Drafted(
            self.cycles - earlier.cycles,
            self.accepted - earlier.accepted,
            tuple(a - b for a, b in zip(now, then, strict=True)),
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

    The first token of an answer comes from the prompt and from no cycle.
    """
    cycles = tokens = count = 0
    for meta in answers:
        if "spec_verify_ct" not in meta:
            return None
        cycles += int(meta["spec_verify_ct"])
        tokens += int(meta["completion_tokens"])
        count += 1
    return Drafted(cycles, max(0, tokens - count - cycles)) if count else None
