"""Folders below a training's output."""

from __future__ import annotations

from typing import Final

CHECKPOINTS: Final = "checkpoints"
DRAFTER: Final = "drafter"
