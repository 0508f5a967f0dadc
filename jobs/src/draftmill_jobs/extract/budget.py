"""Back-pressure: how many tokens may be on their way at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class TokenBudget:
    """Tokens between being asked for and being durable in the store. First come, first served."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """Takes where the limit is asked for, which may change."""
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """Tokens on their way."""
        return self._taken

    async def acquire(self, tokens: int, *, alone: bool = False) -> int:
        """Waits until so many tokens fit, and takes them.

        Args:
            tokens: Of a row. One that has more than the limit waits until nothing else is on its way.
            alone: Wait for that in any case, and let nothing else begin meanwhile.

        Returns:
            What to release.
        """
        wanted = max(tokens, self._limit()) if alone else tokens
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, turn))
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(wanted)
            else:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not turn)
                self._let_in()
            raise
        return wanted

    def release(self, taken: int) -> None:
        """Gives back what `acquire` returned."""
        self._taken -= taken
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
                continue
            if self._taken and self._taken + wanted > self._limit():
                return
            self._waiting.popleft()
            self._taken += wanted
            turn.set_result(None)
