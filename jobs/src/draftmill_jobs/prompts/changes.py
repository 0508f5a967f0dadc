"""Whether the prompts of a source are still those that a folder has answers to.

Rows that were added, removed, or put in another order, and another limit, filter or seed, change no prompt. A
prompt whose text was changed looks like one that is gone and another that is new: so a source that has lost
prompts that were answered, and has others that it did not have before, is another source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftmill_api.v1alpha1.source import Filters
from draftmill_jobs.prompts.index import PromptIndex
from draftmill_jobs.prompts.reading import DatasetRows
from draftmill_jobs.prompts.table import KEY_BYTES
from draftmill_jobs.shared.settings import DatasetSettings


@dataclass(frozen=True, slots=True)
class ChangedPrompts:
    """A source that is another one.

    Attributes:
        gone: Prompts that were answered and that the source does not have any longer.
        example: The key of one of them.
        new: Prompts that the source did not have before.
        place: Where the first of them stands in the source.
    """

    gone: int
    example: str
    new: int
    place: int


def changed_prompts(
    settings: DatasetSettings, before: PromptIndex, now: PromptIndex, answered: Iterable[str]
) -> ChangedPrompts | None:
    """What makes the source another one; None when it is the same in this sense.

    Args:
        settings: The dataset as it is read now.
        before: Its prompts when it was last read.
        now: Its prompts now.
        answered: Keys of the prompts that have a record; read only when prompts are gone and others new.

    Raises:
        JobRefusedError: The source cannot be read.
    """
    if before.keys == now.keys:
        return None
    old, new = before.prompts(), now.prompts()
    missing, added = _not_in(old, new), _not_in(new, old)
    if not len(missing) or not len(added):
        return None
    lost = {key.ljust(KEY_BYTES, b"\0") for key in missing.tolist()}
    gone = lost.intersection(bytes.fromhex(key) for key in answered)
    if gone:
        gone.difference_update(bytes.fromhex(row.key) for row in DatasetRows(_unlimited(settings)))
    if not gone:
        return None
    is_new = np.isin(np.frombuffer(now.keys, dtype=f"S{KEY_BYTES}"), added)
    return ChangedPrompts(len(gone), min(gone).hex(), len(added), now.places[int(np.argmax(is_new))])


def _not_in(keys: NDArray[np.bytes_], others: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """Those of the keys that are not among others; both are sorted."""
    if not len(others):
        return keys
    places = np.minimum(others.searchsorted(keys), len(others) - 1)
    missing: NDArray[np.bytes_] = keys[others[places] != keys]
    return missing


def _unlimited(settings: DatasetSettings) -> DatasetSettings:
    """The whole source, of which a limit, a filter or a seed may choose other rows than before."""
    return dataclasses.replace(settings, max_samples=None, filters=Filters(), shuffle_seed=None)
