"""How many processor cores this process may keep busy."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    """Cores that it may run on, and no more than its container's CPU limit, rounded up; at least 1.

    Args:
        quota: Of the control group: microseconds of work in each period of so many microseconds, or `max`.
    """
    allowed = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
    except (OSError, ValueError):  # no control group of version 2, or none of its own
        return allowed
    return allowed if limit == "max" else max(1, min(allowed, math.ceil(int(limit) / int(period))))
