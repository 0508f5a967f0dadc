"""Waiting for a condition with a deadline, in place of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
_PERIOD = 0.2


def until(look: Callable[[], Value | None], within: float, what: str | Callable[[], str]) -> Value:
    """Looks again and again until there is something, and returns it.

    Args:
        look: Returns None (or another false value) while there is nothing.
        within: Seconds until it gives up.
        what: What was waited for, or a function that tells how things stand at the end.

    Raises:
        AssertionError: The time is over.
    """
    deadline = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(_PERIOD)


def quiet_for(seconds: float) -> None:
    """Lets a time pass that proves the absence of something, or that leads to a moment of no meaning.

    There is no condition to wait for then; whatever shall happen is waited for with `until`.
    """
    time.sleep(seconds)
