"""Files that another program may be reading while a test writes them."""

from __future__ import annotations

from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Writes a file so that who reads it meets the old content or the new one, whole."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
