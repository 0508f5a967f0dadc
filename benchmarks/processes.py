"""What the processes of a benchmark have in common: a core each, and room for many connections."""

from __future__ import annotations

import os
import resource


def cores() -> tuple[int, int]:
    """A core for the client and one for everything else; the same where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1], allowed[0]


def settle_down(core: int) -> None:
    """Binds this process to a core, and lets it open as many files as it may."""
    os.sched_setaffinity(0, {core})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
