"""The work queue: each key once, one pass at a time for a key, backoff after errors, later looks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from draftmill_operator.metrics import QUEUE_ADDS, QUEUE_DEPTH, QUEUE_RETRIES
from draftmill_operator.run import RunKey

log = logging.getLogger(__name__)

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 60.0

Pass = Callable[[RunKey], Awaitable[float | None]]
"""One pass over a run; the answer is the number of seconds until the next look, if there shall be one."""


class WorkQueue:
    """Keys that wait for a pass, and the workers that make the passes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: asyncio.Queue[RunKey] = asyncio.Queue()
        self._waiting: set[RunKey] = set()
        self._running: dict[RunKey, float] = {}
        self._again: set[RunKey] = set()
        self._failures: dict[RunKey, int] = {}
        self._timers: dict[RunKey, asyncio.TimerHandle] = {}

    def add(self, key: RunKey) -> None:
        """Call for a pass; calls that come before it begins, or while one runs, are one."""
        QUEUE_ADDS.inc()
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)
            QUEUE_DEPTH.set(len(self._waiting))

    def add_later(self, key: RunKey, delay: float) -> None:
        """Call for a pass after so many seconds; the earliest of several such calls counts."""
        loop = asyncio.get_running_loop()
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= loop.time() + delay:
                return
            pending.cancel()
        self._timers[key] = loop.call_later(delay, self._due, key)

    def longest_running(self) -> float:
        """Seconds for which the oldest pass has been at work."""
        return self._clock() - min(self._running.values(), default=self._clock())

    async def work(self, make_pass: Pass) -> None:
        """Make passes for ever; several tasks may do so at once."""
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            QUEUE_DEPTH.set(len(self._waiting))
            self._running[key] = self._clock()
            self._cancel_timer(key)
            try:
                delay = await make_pass(key)
                self._failures.pop(key, None)
                if delay is not None:
                    self._schedule(key, delay)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  whatever a pass meets, the others go on and it is repeated
                self._retry(key, error)
            finally:
                del self._running[key]
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _schedule(self, key: RunKey, delay: float) -> None:
        if delay > 0:
            self.add_later(key, delay)
        else:
            self._again.add(key)

    def _retry(self, key: RunKey, error: Exception) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures - 1, 10))
        expected = isinstance(error, RetryLater)
        log.log(
            logging.INFO if expected else logging.ERROR,
            "pass over %s failed (%d in a row, next in %.1f s): %s",
            key,
            failures,
            delay,
            error,
            exc_info=None if expected else error,
        )
        QUEUE_RETRIES.inc()
        self.add_later(key, delay)

    def _due(self, key: RunKey) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: RunKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()


class RetryLater(Exception):  # noqa: N818  it is a request, made by raising
    """A pass met something that is in the status already, and that a later pass may not meet."""
