"""The circuit breaker of one server: taken out when nothing succeeds there, probed, and taken back. Pure."""

from __future__ import annotations

from typing import Final

from draftmill_jobs.generate.retry import longest_backoff

TRIPS_AT: Final = 10
"""Failures in a row after which no more rows are sent."""
_LONGEST_OPEN: Final = 15.0  # seconds between two probes


class Breaker:
    """A circuit breaker (M. Nygard, Release It!): open when many requests in a row failed.

    While it is open no row is sent; a probe, for which it is half-open, decides whether it closes. Probes
    that fail, and rows that fail after a probe that did not, make the time until the next one longer.
    """

    def __init__(self) -> None:
        """Begins closed."""
        self._failures = 0
        self._trips = 0
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether no row is to be sent."""
        return self._is_open

    @property
    def open_for(self) -> float:
        """Seconds until the next probe, while it is open."""
        return min(_LONGEST_OPEN, longest_backoff(self._trips)) if self._is_open else 0.0

    def answered(self) -> None:
        """A row was answered."""
        self._failures = self._trips = 0

    def failed(self) -> bool:
        """A row's request failed through no fault of its own; returns whether that is one too many."""
        self._failures += 1
        return self._failures >= TRIPS_AT

    def trip(self) -> None:
        """Opens it; also after a probe that failed, for longer than before."""
        self._failures = 0
        self._trips += 1
        self._is_open = True

    def close(self) -> None:
        """A probe succeeded."""
        self._is_open = False
