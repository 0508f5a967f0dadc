"""How long no server has been of any use, and when that is too long. Pure."""

from __future__ import annotations

from collections.abc import Collection

from draftmill_api.base import seconds
from draftmill_jobs.errors import JobFailedError
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

    def check(
        self, states: Collection[EndpointState], now: float, *, limit: str, field: str, problem: str
    ) -> None:
        """Ends the wait when it has been too long.

        Args:
            states: Of each server that is named.
            now: Monotonic seconds.
            limit: The longest wait, a `Duration`.
            field: Where the limit stands.
            problem: What is wrong with each server.

        Raises:
            JobFailedError: None of the servers has been up for longer than the limit.
        """
        if self.seconds(states, now) > seconds(limit):
            raise JobFailedError(
                "ServersUnreachable", f"no server could be used for {limit} ({field}); {problem}"
            )
