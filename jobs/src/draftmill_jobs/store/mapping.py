"""A sealed shard, mapped."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path

from draftmill_jobs.store.tensors import LENGTH_BYTES, TensorPlace, header_bytes, parse_header


class MappedShard:
    """A shard's bytes in memory, read from the disk as they are used.

    The map is private and may be written to, for torch wants that of memory that it shares; a write changes
    this process's copy of a page, never the file. It is unmapped when the last array or tensor of it goes,
    and never before: torch does not lock the memory that it shares.
    """

    def __init__(self, path: Path) -> None:
        """Maps a shard.

        Raises:
            OSError: It cannot be opened.
            TensorFileError: It is not a whole safetensors file.
        """
        self.path = path
        with path.open("rb") as file:
            size = path.stat().st_size
            self.places: Mapping[str, TensorPlace] = read_places(path)
            self.memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)


def read_places(path: Path) -> dict[str, TensorPlace]:
    """The tensors of a safetensors file.

    Raises:
        OSError: It cannot be opened.
        TensorFileError: It is not a whole safetensors file.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        start = file.read(LENGTH_BYTES)
        return parse_header(start + file.read(header_bytes(start, size)), size)
