"""The map between draft ids and target ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.train.vocabulary import DraftVocabulary, VocabularyError, choose_vocabulary, count_tokens


def test_the_most_frequent_ids_are_chosen_and_the_lower_one_among_equals() -> None:
    counts = np.array([1, 5, 0, 5, 1, 1], np.int64)

    assert choose_vocabulary(counts, 3).target_ids.tolist() == [0, 1, 3]


def test_ids_that_never_occur_fill_up_from_the_lowest() -> None:
    counts = np.array([0, 0, 0, 0, 7], np.int64)

    assert choose_vocabulary(counts, 3).target_ids.tolist() == [0, 1, 4]


def test_the_choice_does_not_depend_on_the_order_of_the_data() -> None:
    ids = np.array([3, 9, 9, 1, 3, 7], np.int32)
    chosen = [choose_vocabulary(count_tokens(x, 12), 3).target_ids.tolist() for x in (ids, ids[::-1])]

    assert chosen[0] == chosen[1] == [1, 3, 9]


def test_what_is_no_id_of_the_target_is_not_counted() -> None:
    counts = count_tokens(np.array([4, -1, 4, 2, 6], np.int32), 6)

    assert counts.tolist() == [0, 0, 1, 0, 2, 0]


def test_without_counts_there_is_an_error_and_no_vocabulary_of_another_size() -> None:
    """Reported failure 14 (speculators#1081): the size that was asked for was ignored in silence."""
    with pytest.raises(VocabularyError, match="no token was counted"):
        choose_vocabulary(np.zeros(2048, np.int64), 512)


def test_more_ids_than_the_target_has_are_refused() -> None:
    with pytest.raises(VocabularyError, match="of 9 ids cannot come from a target's 8"):
        choose_vocabulary(np.ones(8, np.int64), 9)


@given(st.data())
def test_offsets_and_ids_say_the_same(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 200))
    counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)), np.int64)
    counts[0] += 1
    vocabulary = choose_vocabulary(counts, data.draw(st.integers(1, size)))
    again = DraftVocabulary.from_offsets(vocabulary.d2t, size)

    assert vocabulary.d2t.dtype == np.int64
    assert (np.diff(np.arange(len(vocabulary)) + vocabulary.d2t) > 0).all()
    assert np.flatnonzero(vocabulary.t2d).tolist() == vocabulary.target_ids.tolist()
    assert again.target_ids.tolist() == vocabulary.target_ids.tolist()


@pytest.mark.parametrize("offsets", [[0, -1], [5, 9], [-1, 0]], ids=["twice", "too high", "negative"])
def test_offsets_that_are_no_map_are_refused(offsets: list[int]) -> None:
    with pytest.raises(VocabularyError, match="strictly ascending ids from 0 to 9"):
        DraftVocabulary.from_offsets(np.array(offsets, np.int64), 10)


def test_a_drafter_with_the_whole_vocabulary_has_offsets_of_zero() -> None:
    assert DraftVocabulary.of_everything(5).d2t.tolist() == [0, 0, 0, 0, 0]


def test_coverage_is_the_share_of_tokens_that_can_be_said() -> None:
    counts = np.array([6, 3, 0, 1], np.int64)

    assert choose_vocabulary(counts, 2).coverage(counts) == pytest.approx(0.9)
    assert choose_vocabulary(counts, 2).coverage(np.zeros(4, np.int64)) == 0.0
