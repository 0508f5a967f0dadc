"""Histories of runs: a spec, a time in which all goes well, and then one event after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from tests.unit.operator.world.events import ALL, RUNS, Event, happen
from tests.unit.operator.world.invariants import Transition
from tests.unit.operator.world.subjects import SYNTH, Subject
from tests.unit.operator.world.world import World

Happening = tuple[Event, int]
LONGEST_HEAD_START: Final = 25
STEPS_TO_THE_END: Final = 400
"""Enough for the slowest way to the end on which nothing goes wrong any more."""


def play(
    spec: dict[str, Any], head_start: int, history: Sequence[Happening], subject: Subject = SYNTH
) -> tuple[Transition, ...]:
    """Let it all happen, and then let the run come to its end; the phases it went through.

    Raises:
        AssertionError: something did not hold, or the run does not end.
    """
    world = World(subject=subject, **spec)
    for _ in range(head_start):
        world.go_on()
    for event, pick in history:
        happen(world, event, pick)
    world.turn_benign()
    world.ends(within=STEPS_TO_THE_END)
    world.look_twice()
    return tuple(world.checks.transitions)


def seeded(seed: int, length: int) -> tuple[dict[str, Any], int, list[Happening]]:
    """A history of so many events by the number of its seed."""
    chance = random.Random(seed)
    spec = chance.choice(RUNS)
    head_start = chance.randint(0, LONGEST_HEAD_START)
    return spec, head_start, [(chance.choice(ALL), chance.randrange(256)) for _ in range(length)]
