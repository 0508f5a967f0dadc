"""How long to wait before a row is asked again. Pure."""

from __future__ import annotations

import random

_BASE = 1.0  # seconds
_CAP = 60.0  # seconds


def backoff(tries: int, retry_after: float | None, rng: random.Random) -> float:
    """Full jitter: a random time up to 1, 2, 4, ... 60 s; never sooner than the server asked for.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

    Args:
        tries: Tries so far, at least 1.
        retry_after: Seconds that the server asked to wait.
        rng: Source of the jitter.
    """
    jitter = rng.uniform(0.0, longest_backoff(tries))
    return jitter if retry_after is None else retry_after + jitter


def longest_backoff(tries: int) -> float:
    """1, 2, 4, ... 60 s after so many tries, at least 1."""
    return min(_CAP, _BASE * 2.0 ** (min(tries, 16) - 1))
