"""The demo's prompts: two datasets of reasoning-gym tasks, all rows different."""

from __future__ import annotations

from pathlib import Path

from draftmill_dev import cache, environment, venvs

ROWS = 100
_MAKE = venvs.REPOSITORY / "dev" / "environment" / "make_prompts.py"


def build(rows: int = ROWS) -> Path:
    """Returns a folder with `B1_arithmetic.jsonl` and `B2_logic.jsonl`; makes it when it is not there yet.

    Args:
        rows: Prompts in each file.

    Raises:
        CommandError: The prompts could not be made.
    """

    def make(folder: Path) -> None:
        cache.run([environment.build() / "bin" / "python", _MAKE, folder / "prompts", str(rows)], folder)

    return cache.build("prompts", [_MAKE, venvs.REQUIREMENTS / "server.txt", str(rows)], make) / "prompts"
