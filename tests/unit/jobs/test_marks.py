"""The tokens that matter are found wherever they stand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.model.marks import MarkFinder

tokens = st.integers(0, 40) | st.sampled_from([163_607, (1 << 31) - 1])


@given(ids=st.lists(tokens, max_size=400), marks=st.frozensets(st.integers(0, 40), max_size=5))
def test_marks_are_found_in_answers_of_any_length(ids: list[int], marks: frozenset[int]) -> None:
    expected = [place for place, token in enumerate(ids) if token in marks]
    assert MarkFinder(marks).places(ids) == expected
    assert MarkFinder(marks).places([50] * 200 + ids) == [200 + place for place in expected]
