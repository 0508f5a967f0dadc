"""Figures as people read them. Pure."""

from __future__ import annotations

import math


def two_digits(value: float) -> str:
    """A number with two significant digits: 0.63, 1.1, 12, 120."""
    if value <= 0:
        return "0"
    decimals = max(0, 1 - math.floor(math.log10(value)))
    return f"{round(value, 1 - math.floor(math.log10(value))):.{decimals}f}"


def short_time(seconds: float) -> str:
    """A span of time in one unit, for the log: 99s, 12.5m, 4.6h."""
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.1f}m" if seconds < 6000 else f"{seconds / 3600:.1f}h"


def clock_time(seconds: float) -> str:
    """A span of time in its two largest units, for status: 45s, 4m30s, 4h36m, 52h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    hours, rest = divmod(round(whole / 60), 60)
    return f"{hours}h{rest}m" if rest else f"{hours}h"


def byte_size(size: int) -> str:
    """A number of bytes with three digits, in powers of 1000: 828 GB, 1.21 MB, 12 B."""
    if size < 1000:
        return f"{size} B"
    value, units = float(size), iter(("kB", "MB", "GB", "TB", "PB", "EB"))
    unit = ""
    while value >= 999.5 and (unit := next(units, unit)):
        value /= 1000
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"
