"""Steps that have no use for torch do without it, also where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_torch() -> Iterator[None]:
    """Makes torch look as if it were not installed, unless it has been imported already.

    transformers imports all of it to read a tokenizer: half a gigabyte and some seconds of CPU, for nothing.
    The image of these steps has none, so what works here works there.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's own way to say so
    try:
        yield
    finally:
        del sys.modules["torch"]
