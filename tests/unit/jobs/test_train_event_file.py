"""Event files, read back by the rules that TensorBoard reads by."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from draftmill_jobs.train.event_file import EventFile, masked_checksum
from tests.support.event_reader import curve, fields, records


def test_scalars_come_back_with_step_and_tag(tmp_path: Path) -> None:
    with EventFile(tmp_path / "events", 1_700_000_000.0) as file:
        file.add({"loss/0": 1.5, "tokens": 300.0}, step=300, now=1_700_000_001.0)
    version, event = (dict(fields(record)) for record in records(file.path))
    summary = event[5]
    assert isinstance(summary, bytes)
    values = [dict(fields(value)) for _, value in fields(summary) if isinstance(value, bytes)]

    assert version[3] == b"brain.Event:2"
    assert event[2] == 300
    assert struct.unpack("<d", event[1])[0] == 1_700_000_001.0  # type: ignore[arg-type]
    assert [value[1] for value in values] == [b"loss/0", b"tokens"]
    assert [struct.unpack("<f", value[2])[0] for value in values] == [1.5, 300.0]  # type: ignore[arg-type]


def test_a_training_that_goes_on_is_one_curve_though_the_end_of_a_file_is_torn(tmp_path: Path) -> None:
    for now, losses in ((1.0, {1: 3.0, 2: 2.0, 3: 9.0}), (2.0, {3: 1.5, 4: 1.0})):
        with EventFile(tmp_path, now) as file:
            for step, loss in losses.items():
                file.add({"loss/0": loss}, step=step, now=now)
    content = file.path.read_bytes()
    file.path.write_bytes(content[:-3])

    assert curve(tmp_path, "loss/0") == {1: 3.0, 2: 2.0, 3: 1.5}


def test_a_training_that_goes_on_begins_another_file(tmp_path: Path) -> None:
    for now in (1.0, 2.0):
        EventFile(tmp_path, now).close()

    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (bytes([0xFF] * 32), 0x62A8AB43)],
)
def test_the_checksum_is_that_of_the_standard(data: bytes, checksum: int) -> None:
    """CRC-32C of RFC 3720, appendix B.4, masked as TensorFlow's records are."""
    turned = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    masked = (turned + 0xA282EAD8) & 0xFFFFFFFF

    assert masked_checksum(data) == struct.pack("<I", masked)
