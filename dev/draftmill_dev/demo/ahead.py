"""Building in the background what later steps need: one build waits where another computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from draftmill_dev.errors import DevError

Build = Callable[[], object]


def begin(builds: Sequence[Build]) -> threading.Thread:
    """Begins to build, one after the other, and returns at once.

    The cache builds each thing once: a step that needs one in the making waits for it. A build that fails
    ends the work without a word: the step that needs it builds it again, and says what is wrong.
    """
    thread = threading.Thread(target=_build, args=(builds,), name="ahead", daemon=True)
    thread.start()
    return thread


def _build(builds: Sequence[Build]) -> None:
    for build in builds:
        try:
            build()
        except DevError:
            return
