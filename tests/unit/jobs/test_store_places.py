"""Every row is found, among few and among many."""

from __future__ import annotations

from draftmill_api.record import RecordStatus
from draftmill_api.store import StoreLine
from draftmill_jobs.store.places import Place, RowPlaces


def _line(number: int) -> StoreLine:
    return StoreLine(
        dataset=f"B{number % 3}",
        id=f"{number:032x}",
        prompt_key=f"{number:032x}",
        turn=0,
        prompt_tokens=1,
        status=RecordStatus.OK,
        tokens=number + 1,
        shard=f"states-w0-{number // 100}.safetensors",
        offset=4096 * number,
        hash="0" * 32,
    )


def test_rows_are_found_where_they_were_put_and_no_others_are() -> None:
    places = RowPlaces()
    for number in range(9000):  # more than are merged at once
        places.add(_line(number))

    assert len(places) == 9000
    for number in (0, 1, 4095, 4096, 8191, 8999):
        line = _line(number)
        assert places.find(line.key) == Place(line.shard, line.offset, line.tokens)
    assert places.find(("B0", f"{9001:032x}")) is None
    assert places.find(("B1", f"{0:032x}")) is None


def test_a_row_that_is_taken_out_is_there_no_longer_until_it_is_put_in_again() -> None:
    places = RowPlaces()
    for number in range(9000):
        places.add(_line(number))

    for number in (0, 4095, 8999):  # of the sorted array, and of those that are not yet in it
        line = _line(number)
        assert places.take_out(line.key) == Place(line.shard, line.offset, line.tokens)
        assert places.take_out(line.key) is None
        assert places.find(line.key) is None
    assert len(places) == 8997
    assert places.find(_line(4096).key) is not None

    places.add(_line(4095))

    assert places.find(_line(4095).key) is not None
    assert len(places) == 8998
