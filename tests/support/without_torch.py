"""Importing this hides torch from the process, as in the image of generator and extractor, which has none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class WithoutTorch(PathFinder):
    """Finds every module but torch."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module lies."""
        return None if fullname == "torch" else super().find_spec(fullname, path, target)


sys.meta_path = [WithoutTorch if finder is PathFinder else finder for finder in sys.meta_path]
