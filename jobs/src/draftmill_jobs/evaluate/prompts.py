"""The prompts that a drafter was not trained on, as token ids out of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.store.reader import Store
from draftmill_jobs.train.packing import hash_of, is_held_out


@dataclass(frozen=True, slots=True)
class Prompt:
    """A row's prompt."""

    key: str
    token_ids: tuple[int, ...]


def held_out_prompts(store: Store, *, percent: float, most: int) -> list[Prompt]:
    """So many held-out prompts, each once, in an order by hash: the same ones every time.

    Raises:
        JobRefusedError: There is none.
    """
    chosen = _chosen(store, percent, most)
    if not chosen:
        raise JobRefusedError(
            "NothingHeldOut",
            f"heldOutPercent {percent:g} holds no row of {store.folder} out, so there is no prompt to ask",
        )
    return [
        Prompt(
            "/".join(store.lines[row].key),
            tuple(store[row].token_ids[: store.lines[row].prompt_tokens].tolist()),
        )
        for row in chosen
    ]


def _chosen(store: Store, percent: float, most: int) -> Sequence[int]:
    first = dict[str, int]()  # row of each prompt
    for row, line in enumerate(store.lines):
        if is_held_out(line.prompt_key, percent) and 0 < line.prompt_tokens <= line.tokens:
            first.setdefault(line.prompt_key, row)
    return [first[key] for key in sorted(first, key=lambda key: (hash_of(key), key))][:most]
