"""The rows of a dataset: its source's, under our names, filtered, in the order that is asked for."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from draftmill_api.record import prompt_key
from draftmill_api.v1alpha1.synthrun import Turns
from draftmill_jobs.prompts.fields import Renaming
from draftmill_jobs.prompts.filters import passes
from draftmill_jobs.prompts.rows import SourceRow
from draftmill_jobs.prompts.shapes import Prompt, UnusableRowError, read_prompt, read_turns
from draftmill_jobs.prompts.sources.base import BrokenRow
from draftmill_jobs.prompts.sources.opening import open_source
from draftmill_jobs.prompts.sources.shuffling import shuffled
from draftmill_jobs.shared.settings import DatasetSettings


class DatasetRows:
    """The rows of a dataset that its filters leave, in its order, duplicates included, of `max_samples`.

    Where every turn of a conversation is a row, one row of the source gives several, which stand together.

    Attributes:
        filtered: Rows that the filters have left out, as far as they were last read.

    Raises:
        JobRefusedError: The source cannot be read.
        JobFailedError: The hub does not answer.
    """

    def __init__(self, dataset: DatasetSettings) -> None:
        self._dataset = dataset
        self._source = open_source(dataset.source, dataset.folder)
        self._renaming = Renaming(dataset.fields)
        self.filtered = 0

    @property
    def unseen_fields(self) -> dict[str, str]:
        """Of the fields that are given, those whose column no row had, as far as rows were read."""
        return self._renaming.unseen

    def identity(self) -> str | None:
        """The same as long as the source's rows are the same; None where it cannot say so."""
        return self._source.identity()

    def __iter__(self) -> Iterator[SourceRow]:
        """Reads them from the start.

        Raises:
            JobRefusedError: The source cannot be read to its end.
        """
        return self.read(None)

    def read(self, wanted: Sequence[int] | None) -> Iterator[SourceRow]:
        """Reads those at the wanted places of the source, which ascend; all when none are named.

        Raises:
            JobRefusedError: The source cannot be read to its end.
        """
        conversations = self._taken(self._in_order(wanted))
        return chain.from_iterable(islice(conversations, self._dataset.max_samples))

    def _taken(self, rows: Iterable[tuple[int, Any]]) -> Iterator[list[SourceRow]]:
        self.filtered = 0
        for position, row in rows:
            turns = self._identified(row, position)
            prompt = turns[-1].prompt
            if prompt is not None and not passes(prompt.messages, self._dataset.filters):
                self.filtered += 1
            else:
                yield turns

    def _in_order(self, wanted: Sequence[int] | None) -> Iterator[tuple[int, Any]]:
        seed = self._dataset.shuffle_seed
        if seed is None:
            rows = self._source.rows(wanted)
            yield from enumerate(rows) if wanted is None else zip(wanted, rows, strict=False)
            return
        self._dataset.folder.mkdir(parents=True, exist_ok=True)
        with self._source.indexed(self._dataset.folder) as index:
            positions = (
                np.arange(len(index), dtype=np.uint64) if wanted is None else np.array(wanted, np.uint64)
            )
            order = array("Q", shuffled(positions, seed).tobytes())
            yield from zip(order, index.rows_at(order), strict=True)

    def _identified(self, row: Any, position: int) -> list[SourceRow]:
        """The rows that a row of the source gives: as many as it has turns, where each of them is a row."""
        first_turn = 0 if self._dataset.turns is Turns.EVERY_TURN else None
        if isinstance(row, BrokenRow):
            return [SourceRow(_hash(row.line), position, None, row.problem, first_turn)]
        try:
            renamed = self._renaming.renamed(row)
            if first_turn is None:
                prompt = read_prompt(renamed)
                return [SourceRow(self._key(prompt), position, prompt)]
            return [
                SourceRow(self._key(prompt), position, prompt, turn=prompt.turn)
                for prompt in read_turns(renamed)
            ]
        except UnusableRowError as error:
            problem = str(error)
        except (TypeError, UnicodeEncodeError) as error:  # a date of Arrow, half of a surrogate pair
            problem = f"not JSON: {error}"
        return [SourceRow(_hash(ascii(row).encode()), position, None, problem, first_turn)]

    def _key(self, prompt: Prompt) -> str:
        return prompt_key(prompt.messages, prompt.tools, self._dataset.chat_template_kwargs)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
