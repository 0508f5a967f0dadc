"""How much memory a program has.

Not `ru_maxrss`: Linux keeps that figure through fork and exec, so that a program is charged with what the one
that started it had at that moment. What /proc says is of the memory of the program alone.
"""

from __future__ import annotations

import re
from pathlib import Path


def peak_memory() -> int:
    """The most bytes that this program has had in memory, pages of mapped files among them."""
    return _bytes(Path("/proc/self/status").read_text(), "VmHWM")


def anonymous_memory(pid: int) -> int:
    """Bytes of a program that no file stands behind now; 0 when it has just ended."""
    try:
        return _bytes(Path(f"/proc/{pid}/status").read_text(), "RssAnon")
    except ProcessLookupError:
        return 0


def _bytes(status: str, what: str) -> int:
    found = re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
