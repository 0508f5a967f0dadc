"""Event files, read back by the rules that TensorBoard reads by."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from draftmill_jobs.train.event_file import masked_checksum


def records(path: Path) -> Iterator[bytes]:
    """The data of each whole record, whose checksums are right."""
    content = path.read_bytes()
    while len(content) >= 12:
        length, checksum = content[:8], content[8:12]
        (size,) = struct.unpack("<Q", length)
        data, rest = content[12 : 12 + size], content[12 + size :]
        assert checksum == masked_checksum(length)
        if len(rest) < 4:
            return  # the writer was killed
        assert rest[:4] == masked_checksum(data)
        yield data
        content = rest[4:]


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and content of each field of a message."""
    while data:
        key, data = _varint(data)
        match key & 7:
            case 0:
                value, data = _varint(data)
                yield key >> 3, value
            case 1:
                yield key >> 3, data[:8]
                data = data[8:]
            case 5:
                yield key >> 3, data[:4]
                data = data[4:]
            case 2:
                size, data = _varint(data)
                yield key >> 3, data[:size]
                data = data[size:]
            case other:
                raise AssertionError(f"wire type {other}")


def curve(folder: Path, tag: str) -> dict[int, float]:
    """A scalar by step, over all files; of a step that was done again, the last value."""
    found = defaultdict[str, dict[int, float]](dict)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for record in records(path):
            event = dict(fields(record))
            step, summary = event.get(2), event.get(5)
            if not isinstance(step, int) or not isinstance(summary, bytes):
                continue
            for _, value in fields(summary):
                assert isinstance(value, bytes)
                parts = dict(fields(value))
                name, number = parts[1], parts[2]
                assert isinstance(name, bytes)
                assert isinstance(number, bytes)
                (found[name.decode()][step],) = struct.unpack("<f", number)
    return dict(sorted(found[tag].items()))


def _varint(data: bytes) -> tuple[int, bytes]:
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value, data[place + 1 :]
    raise AssertionError("a number without an end")
