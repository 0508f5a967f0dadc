"""The prompts that a drafter was not trained on, as token ids out of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmill_api.trainjob import JobEvaluation
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
    return [
        Prompt(
            "/".join(store.lines[row].key),
            tuple(store[row].token_ids[: store.lines[row].prompt_tokens].tolist()),
        )
        for row in _chosen(store, percent, most)
    ]


def check_askable(store: Store, wanted: JobEvaluation, *, percent: float, model_context: int | None) -> None:
    """Looks at what an evaluation will ask, before anything is trained for it.

    Args:
        store: Whose prompts are asked.
        wanted: The evaluation.
        percent: Of the prompts that are held out.
        model_context: Longest sequence that the model states, in tokens, if it does.

    Raises:
        JobRefusedError: Nothing is held out; or a server would refuse a prompt, for it has no room for that
            and the answer.
    """
    chosen = _chosen(store, percent, wanted.max_rows)
    longest = max(store.lines[row].prompt_tokens for row in chosen)
    limit = wanted.context_length or model_context
    if limit is not None and longest + wanted.max_tokens > limit:
        where = "evaluation.server.contextLength" if wanted.context_length else "the model's context length"
        raise JobRefusedError(
            "EvaluationImpossible",
            f"the longest of {len(chosen)} held-out prompts has {longest} tokens and an answer up to "
            f"{wanted.max_tokens}, which is more than {limit}, {where}: no server would take it; lower "
            "evaluation.maxTokens or evaluation.maxRows, or raise the limit",
        )


def _chosen(store: Store, percent: float, most: int) -> Sequence[int]:
    first = dict[str, int]()  # row of each prompt
    for row, line in enumerate(store.lines):
        if is_held_out(line.split_key, percent) and 0 < line.prompt_tokens <= line.tokens:
            first.setdefault(line.prompt_key, row)
    if not first:
        raise JobRefusedError(
            "NothingHeldOut",
            f"heldOutPercent {percent:g} holds no row of {store.folder} out, so there is no prompt to ask",
        )
    return [first[key] for key in sorted(first, key=lambda key: (hash_of(key), key))][:most]
