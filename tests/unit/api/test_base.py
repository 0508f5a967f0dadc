from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from draftmill_api.base import Fraction, Temperature, bytes_of, seconds


@given(st.lists(st.tuples(st.integers(0, 9_999_999), st.sampled_from(["h", "m", "s", "ms"])), min_size=1))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    unit = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    text = "".join(f"{number}{name}" for number, name in parts)
    assert seconds(text) == pytest.approx(sum(number * unit[name] for number, name in parts))


@pytest.mark.parametrize("text", ["", "90", "2d", "1.5h", "s", "1h 30m", "-1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("written", "kept"), [(1.0, "1"), (0.95, "0.95"), (0, "0"), ("0.70", "0.70"), (10, "10")]
)
def test_a_number_in_a_config_file_is_kept_as_text(written: object, kept: str) -> None:
    assert TypeAdapter(Temperature).validate_python(written) == kept


@pytest.mark.parametrize("written", [True, "hot", -1, None])
def test_what_is_no_number_is_refused(written: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Fraction).validate_python(written)


@pytest.mark.parametrize(
    ("quantity", "size"),
    [("1024", 1024), ("4Gi", 4 << 30), ("500M", 500_000_000), ("1.5k", 1500), ("1500m", 2)],
)
def test_a_quantity_is_a_number_of_bytes(quantity: str, size: int) -> None:
    assert bytes_of(quantity) == size
