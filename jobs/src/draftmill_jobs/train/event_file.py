"""Event files, as TensorBoard reads them: scalars by step.

A file is a row of records (TensorFlow's TFRecord): length, its checksum, data, its checksum; the data is an
`Event` in protocol buffers' encoding, of which only the few fields below are written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, reflected
_MASK: Final = 0xA282EAD8
_VERSION: Final = b"brain.Event:2"
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types


class EventFile:
    """One event file; a training that is resumed begins another one in the same folder.

    Args:
        folder: Where TensorBoard looks.
        now: Seconds since 1970, which stand in the file's name.
    """

    def __init__(self, folder: Path, now: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events.out.tfevents.{now:010.0f}.{os.getpid()}.draftmill"
        self._file = self.path.open("wb")
        self._write(_double(1, now) + _field(3, _VERSION))

    def add(self, scalars: Mapping[str, float], *, step: int, now: float) -> None:
        """Writes scalars of one step, by their tags."""
        values = b"".join(
            _field(1, _field(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items()
        )
        self._write(_double(1, now) + _integer(2, step) + _field(5, values))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + masked_checksum(length) + data + masked_checksum(data))
        self._file.flush()


def _table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        return value

    return tuple(entry(value) for value in range(256))


_TABLE: Final = _table()


def masked_checksum(data: bytes) -> bytes:
    """CRC-32C, turned and moved as TensorFlow does, so that a checksum of checksums is none."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    turned = (value >> 15 | value << 17) & 0xFFFFFFFF
    return struct.pack("<I", (turned + _MASK) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | _EIGHT_BYTES) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | _FOUR_BYTES) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
