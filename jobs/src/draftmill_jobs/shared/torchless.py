"""Steps that have no use for torch do without it, also where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def hide_torch() -> None:
    """Makes torch look as if it were not installed, unless it has been imported already."""
    _replace(PathFinder, _EverythingButTorch)


def show_torch() -> bool:
    """Takes that back; whether it was hidden."""
    was_hidden = _EverythingButTorch in sys.meta_path
    _replace(_EverythingButTorch, PathFinder)
    return was_hidden


@contextmanager
def without_torch() -> Iterator[None]:
    """The same for a while.

    transformers imports all of it to read a tokenizer: half a gigabyte and some seconds of CPU, for nothing.
    The image of these steps has none, so what works here works there.
    """
    is_hidden_already = _EverythingButTorch in sys.meta_path
    hide_torch()
    try:
        yield
    finally:
        if not is_hidden_already:
            show_torch()


class _EverythingButTorch(PathFinder):
    """Not None in `sys.modules`: libraries take a name that stands there for one that is imported."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module lies."""
        return None if fullname == "torch" else super().find_spec(fullname, path, target)


def _replace(finder: type[PathFinder], other: type[PathFinder]) -> None:
    sys.meta_path[:] = [other if each is finder else each for each in sys.meta_path]
