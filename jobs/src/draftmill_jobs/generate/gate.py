"""How many requests one server may have of us: its cap, lowered while it refuses some of them. Pure."""

from __future__ import annotations

import math
from typing import Final

_CUT: Final = 0.75  # of what it had when it refused
_WINDOWS_BACK: Final = 16  # windows' worth of answers after which what a cut took is more than regained
_COOL_DOWN: Final = 1.0  # seconds without another request after a cut, where the server names no time


class Gate:
    """Additive increase, multiplicative decrease of the requests that a server is given.

    As TCP does with its congestion window (RFC 5681), a refusal (HTTP 429 or 503) cuts the limit to a part of
    what was in flight, not of a limit that was never filled. What is in flight together is refused together,
    so a refusal cuts only if its request was admitted after the cut before. Each answer raises the limit a
    little, but only while the limit is what holds requests back (RFC 7661), and never above the cap.

    Attributes:
        taken: Requests that have a place now.
        generation: Number of the cuts so far: what a request was admitted under.
        refusals: Requests that the server refused.
    """

    def __init__(self, cap: int | None) -> None:
        """Takes the most requests at once; None where nothing but the server limits them."""
        self._cap = math.inf if cap is None else cap
        self._limit = self._cap
        self._step = 0.0
        self._closed_until = -math.inf
        self.taken = 0
        self.generation = 0
        self.refusals = 0

    @property
    def limit(self) -> float:
        """Most requests at once, now: a whole number, or infinite."""
        return self._limit if math.isinf(self._limit) else math.floor(self._limit)

    def set_cap(self, cap: int | None) -> None:
        """Changes the cap; a limit that a cut has lowered stays lowered."""
        cap_now = math.inf if cap is None else cap
        is_cut = self._limit < self._cap
        self._cap = cap_now
        self._limit = min(self._limit, cap_now) if is_cut else cap_now

    def has_room(self, now: float) -> bool:
        """Whether another request may go there; `now` is in monotonic seconds."""
        return self.taken < self.limit and now >= self._closed_until

    def take(self) -> int:
        """Gives a place; returns the generation that the request is admitted under."""
        self.taken += 1
        return self.generation

    def give_back(self) -> None:
        """A place is free again.

        Raises:
            RuntimeError: None was taken.
        """
        if self.taken < 1:
            raise RuntimeError("a place is given back that was not taken")
        self.taken -= 1

    def answered(self) -> None:
        """A request that still has its place was answered."""
        if self._limit < self._cap and self.taken >= self.limit:
            self._limit = min(self._cap, self._limit + self._step / self._limit)

    def closed_for(self, now: float) -> float:
        """Seconds until another request may go there, when there is room; 0 while it is open."""
        return max(0.0, self._closed_until - now)

    def forget(self) -> None:
        """Another process answers there than the one that refused."""
        self._limit = self._cap

    def refused(self, generation: int, now: float, retry_after: float | None) -> None:
        """A request that still has its place was refused for lack of room.

        Args:
            generation: What it was admitted under.
            now: Monotonic seconds.
            retry_after: Seconds that the server asked to wait; the gate is closed as long.
        """
        self.refusals += 1
        if generation == self.generation:
            held = min(self._limit, self.taken)
            self._limit = max(1.0, _CUT * held)
            self._step = max(1.0, held / _WINDOWS_BACK)
            self.generation += 1
            if retry_after is None:
                retry_after = _COOL_DOWN
        if retry_after is not None:
            self._closed_until = max(self._closed_until, now + retry_after)
