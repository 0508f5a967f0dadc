"""The draft vocabulary: which tokens of the target a drafter can say, and how its ids map to theirs.

A drafter's `d2t` holds offsets, not ids: the target's id of draft id i is `i + d2t[i]`. Its `t2d` says of
each target id whether it is in. Rows of a drafter's lm_head mean these ids, so a warm start keeps the map it
came with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class VocabularyError(ValueError):
    """A map that cannot be, or cannot be made from what there is."""


@dataclass(frozen=True, eq=False)
class DraftVocabulary:
    """The map between draft ids and target ids.

    Attributes:
        target_ids: int64[DV], strictly ascending: the target's id of each draft id.
        size_of_target: V, the target's number of ids.
    """

    target_ids: NDArray[np.int64]
    size_of_target: int

    def __post_init__(self) -> None:
        ids = self.target_ids
        if not ids.size or ids[0] < 0 or ids[-1] >= self.size_of_target or (np.diff(ids) <= 0).any():
            raise VocabularyError(
                f"a draft vocabulary needs strictly ascending ids from 0 to {self.size_of_target - 1}"
            )

    @classmethod
    def from_offsets(cls, d2t: NDArray[np.int64], size_of_target: int) -> DraftVocabulary:
        """The map that a checkpoint's `d2t`, int64[DV], stands for.

        Raises:
            VocabularyError: Its ids are not strictly ascending, or not the target's.
        """
        return cls(d2t + np.arange(len(d2t)), size_of_target)

    @classmethod
    def of_everything(cls, size_of_target: int) -> DraftVocabulary:
        """The map of a drafter that can say whatever the target can."""
        return cls(np.arange(size_of_target), size_of_target)

    @property
    def d2t(self) -> NDArray[np.int64]:
        """int64[DV]: offsets from draft id to target id."""
        return self.target_ids - np.arange(len(self))

    @property
    def t2d(self) -> NDArray[np.bool_]:
        """bool[V]: whether a target id is in."""
        inside = np.zeros(self.size_of_target, np.bool_)
        inside[self.target_ids] = True
        return inside

    def __len__(self) -> int:
        return len(self.target_ids)

    def coverage(self, counts: NDArray[np.int64]) -> float:
        """The share of counted tokens, int64[V], that the drafter can say; 0 when nothing was counted."""
        total = int(counts.sum())
        return float(counts[self.target_ids].sum() / total) if total else 0.0


def count_tokens(token_ids: NDArray[np.int32], size_of_target: int) -> NDArray[np.int64]:
    """How often each target id occurs: int64[V] of ids int32[T]; whatever is no id of it is not counted."""
    real = token_ids[(token_ids >= 0) & (token_ids < size_of_target)]
    return np.bincount(real, minlength=size_of_target)


def choose_vocabulary(counts: NDArray[np.int64], size: int) -> DraftVocabulary:
    """The `size` most frequent ids, the lower one first among equals; so unused ids fill up from the lowest.

    Args:
        counts: int64[V], how often each target id occurs in what is trained on.
        size: DV.

    Raises:
        VocabularyError: Nothing was counted, or more ids are asked for than the target has.
    """
    if not 0 < size <= len(counts):
        raise VocabularyError(f"a draft vocabulary of {size} ids cannot come from a target's {len(counts)}")
    if not counts.any():
        raise VocabularyError(f"no token was counted, so the {size} most frequent ones are not known")
    most_frequent = np.argsort(-counts, kind="stable")[:size]
    return DraftVocabulary(np.sort(most_frequent).astype(np.int64), len(counts))
