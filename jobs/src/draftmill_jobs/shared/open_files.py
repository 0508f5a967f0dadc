"""Room for as many connections as there are requests in flight."""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

_OTHERS: Final = 64  # files of datasets, locks, libraries, the loop


def allow_connections(wanted: int) -> None:
    """Lets this process have so many connections at once, or warns that the system does not allow it.

    Shells and some services give a process 1,024 open files unless it asks for more.
    """
    needed = wanted + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed <= soft:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        log.warning(
            "%d requests at once need as many connections, but this process may open %d files: "
            "raise its limit (ulimit -Hn) or lower generation.concurrency",
            wanted,
            hard,
        )
