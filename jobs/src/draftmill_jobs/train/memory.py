"""What the allocator of the C library does with memory that a training step has freed."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGEST: Final = (1 << 31) - 1  # bytes: the parameter is an int


def keep_freed_memory() -> None:
    """From now on freed memory stays with the process, for the next step, which needs as much.

    glibc otherwise gives large blocks back to the kernel at once, and the kernel fills every page with zeros
    when it is asked for again: on a CPU a tenth of a step. Elsewhere (musl) nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(parameter, _LARGEST)
