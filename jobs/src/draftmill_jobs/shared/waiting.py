"""Waiting a while for whoever is still writing to a folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.shared.lock import FolderInUseError

T = TypeVar("T")

_EARLIER_ATTEMPT = 120.0  # seconds that an earlier attempt on another node may take to let go of its files
_OTHER_RUN = 45.0  # seconds that another run may take: one that was deleted drains its answers
_LOOK_AGAIN = 0.5  # seconds between looks at a folder that is in use


async def until_free(opening: Callable[[], T], say: Callable[[str], None], stop: asyncio.Event) -> T | None:
    """Opens a folder, in a thread, as soon as nobody else writes there; None after `stop`.

    Args:
        opening: Opens it, or raises `FolderInUseError`.
        say: Told what it waits for, in a sentence.
        stop: Ends the waiting.

    Raises:
        JobError: Somebody has been writing there for too long.
    """
    began = time.monotonic()
    while not stop.is_set():
        try:
            return await asyncio.to_thread(opening)
        except FolderInUseError as error:
            waited = 0.0 if error.is_passing else time.monotonic() - began
            if error.same_run and waited > _EARLIER_ATTEMPT:
                raise JobFailedError("FolderInUse", f"{error}, an earlier attempt of this run") from error
            if not error.same_run and waited > _OTHER_RUN:
                raise JobRefusedError(
                    "FolderInUse", f"{error}; choose another output.path or end that run"
                ) from error
            say(f"waiting: {error}")
            await asyncio.sleep(_LOOK_AGAIN)
    return None
