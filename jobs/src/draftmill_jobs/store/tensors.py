"""The header of a safetensors file: which tensors there are, and where.

The format: eight bytes with the header's length N (little-endian), N bytes of JSON padded with spaces, then
the tensors one after another without a gap. Offsets in the JSON count from the end of the header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

LENGTH_BYTES: Final = 8
LONGEST_HEADER: Final = 100_000_000  # what the format's own library accepts

_ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


class TensorFileError(Exception):
    """A file is not a whole safetensors file. The message says in what."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor and its bytes `[begin, end)` in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def parse_header(start: bytes | memoryview, file_bytes: int) -> dict[str, TensorPlace]:
    """Reads the header from the first bytes of a file.

    Args:
        start: The file from its beginning, at least to the end of its header.
        file_bytes: Size of the whole file.

    Raises:
        TensorFileError: It is no header, or the file has not exactly the bytes that the header names.
    """
    length = header_bytes(start, file_bytes)
    try:
        header = orjson.loads(start[LENGTH_BYTES : LENGTH_BYTES + length])
        places = {name: _place(entry, LENGTH_BYTES + length) for name, entry in _entries(header)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TensorFileError(f"its header cannot be read: {error}") from error
    end = LENGTH_BYTES + length
    for name, place in sorted(places.items(), key=lambda item: (item[1].begin, item[1].end)):
        if place.begin != end:
            raise TensorFileError(f"tensor {name} starts at byte {place.begin}, the one before ends at {end}")
        end = place.end
    if end != file_bytes:
        raise TensorFileError(f"it has {file_bytes} bytes, and its header names {end}")
    return places


def header_bytes(start: bytes | memoryview, file_bytes: int) -> int:
    """The length of the JSON, from the first eight bytes.

    Raises:
        TensorFileError: The file is shorter than that.
    """
    if len(start) < LENGTH_BYTES:
        raise TensorFileError(f"it has only {file_bytes} bytes")
    (length,) = struct.unpack_from("<Q", start)
    if length > LONGEST_HEADER or LENGTH_BYTES + length > file_bytes:
        raise TensorFileError(f"it has {file_bytes} bytes, and its header alone {LENGTH_BYTES + length}")
    return int(length)


def render_header(places: Mapping[str, TensorPlace], metadata: Mapping[str, str], size: int) -> bytes:
    """A header of exactly `size` bytes, the length before it included, padded with spaces.

    Raises:
        ValueError: It does not fit.
    """
    text = orjson.dumps(
        {
            "__metadata__": dict(metadata),
            **{
                name: {
                    "dtype": place.dtype,
                    "shape": list(place.shape),
                    "data_offsets": [place.begin - size, place.end - size],
                }
                for name, place in places.items()
            },
        }
    )
    room = size - LENGTH_BYTES
    if len(text) > room:
        raise ValueError(f"a header of {len(text)} bytes does not fit into {room}")
    return struct.pack("<Q", room) + text.ljust(room)


def _entries(header: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, entry) for name, entry in header.items() if name != "__metadata__"]


def _place(entry: dict[str, Any], data: int) -> TensorPlace:
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = entry["data_offsets"]
    place = TensorPlace(str(entry["dtype"]), shape, data + int(begin), data + int(end))
    items = 1
    for size in shape:
        items *= size
    if place.end - place.begin != items * _ITEM_BYTES[place.dtype]:
        raise ValueError(f"{place.dtype}{list(shape)} in {place.end - place.begin} bytes")
    return place
