"""How long no server has been of any use. Pure."""

from __future__ import annotations

from collections.abc import Collection

from draftmill_jobs.generate.endpoints import EndpointState


class Outage:
    """Ends a wait that nobody might ever end: for servers that are named and do not come up."""

    def __init__(self, now: float) -> None:
        """Begins at a moment in monotonic seconds, before any server is up."""
        self._since = now

    def seconds(self, states: Collection[EndpointState], now: float) -> float:
        """Seconds for which none of the servers has been up; 0 while none is named.

        Args:
            states: Of each server that is named.
            now: Monotonic seconds.
        """
        if not states or EndpointState.UP in states:
            self._since = now
        return now - self._since
