"""One dataset on its way into the pool of requests: its rows are read ahead of their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import TypeAlias

from draftmill_api.record import DeadLetter
from draftmill_jobs.generate.asking import now_text
from draftmill_jobs.generate.budget import Admission, TokenBudget
from draftmill_jobs.generate.conversations import (
    Conversations,
    MissingTurnError,
    NotAdmitted,
    Outcome,
    Row,
    Steps,
)
from draftmill_jobs.generate.order import LookAhead, Standing
from draftmill_jobs.generate.outlook import Course, Outlook
from draftmill_jobs.generate.records import dead_turn, unusable_row
from draftmill_jobs.generate.resume import OpenDataset, source_changed
from draftmill_jobs.prompts.rows import Question, SourceRow
from draftmill_jobs.shared.left_out import note_left_out
from draftmill_jobs.shared.length_bias import prompt_bytes
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.shared.storage import until_room

Bury: TypeAlias = Callable[[OpenDataset, DeadLetter], Awaitable[None]]

_BATCH = 128  # source rows read at once, off the event loop
_MOST_AHEAD = 256  # rows read ahead
_LARGEST_AHEAD = 32 << 20  # bytes of prompts read ahead, of all datasets together


class Feed:
    """Reads a dataset's rows, and holds those that are to be asked until their turn comes.

    Attributes:
        set_aside: Rows that were taken and still wait for a place.
    """

    def __init__(
        self,
        dataset: OpenDataset,
        share: Share,
        outlook: Outlook,
        *,
        news: asyncio.Event,
        datasets: int,
        bury: Bury,
    ) -> None:
        """Takes a dataset.

        Args:
            dataset: Whose rows.
            share: This worker's part of them.
            outlook: Is told of every row that is asked.
            news: Is set whenever it may have become another's turn.
            datasets: How many share the room for rows read ahead.
            bury: Writes the dead letter of a row that cannot be asked.
        """
        settings = dataset.settings
        cap = None if settings.max_tokens is None else share.of_tokens(settings.max_tokens)
        self.dataset = dataset
        self.set_aside = 0
        self._outlook = outlook.add(dataset.tally, settings.sampling.max_completion_tokens, cap)
        self._budget = TokenBudget(cap)
        self._news = news
        self._bury = bury
        self._conversations = Conversations(dataset.earlier.branches, dataset.earlier.outcomes)
        self._largest_ahead = _LARGEST_AHEAD // datasets
        self._rows = LookAhead[tuple[Question, int]]()
        self._room, self._emptied = asyncio.Event(), asyncio.Event()
        self._is_read_through = False
        self._is_closed = False

    async def read(self) -> None:
        """Reads the dataset through, and returns when none of its rows waits for its turn any longer.

        Raises:
            JobError: The source cannot be read, or the disk does not take what is to be written.
        """
        async for turns in _in_batches(self.dataset.conversations_to_ask()):
            await self._until_room()
            samples = [self.dataset.samples_to_ask(row) for row in turns]
            try:
                steps = self._conversations.open(turns, samples)
            except MissingTurnError:
                raise source_changed(self.dataset.settings.name, turns[0].position) from None
            await self._take(steps)
        self._is_read_through = True
        self._note()
        await self._emptied.wait()
        closing = partial(asyncio.to_thread, _close_accounts, self.dataset)
        await until_room(closing, say=_nothing, stop=asyncio.Event())

    async def go_on(self, question: Question, outcome: Outcome) -> None:
        """Takes in that a row is settled: turns of its conversation may have waited for that.

        Raises:
            JobError: The disk does not take what is to be written.
        """
        await self._take(self._conversations.settle(_row(question), outcome))
        self._note()

    @property
    def has_row(self) -> bool:
        """Whether a row waits for its turn."""
        return len(self._rows) > 0

    @property
    def is_over(self) -> bool:
        """No row waits, and none will come."""
        return self._is_read_through and not self._rows and not self._conversations.waiting

    @property
    def standing(self) -> Standing:
        """What is known of the dataset's answers."""
        return Standing(self.dataset.tally.done + self._outlook.admitted, self._outlook.expected)

    def admission(self) -> Admission:
        """What the token budget says about one more row."""
        outlook = self._outlook
        return self._budget.admits(
            tokens=self.dataset.tally.completion_tokens,
            promised=outlook.promised,
            in_flight=outlook.admitted,
        )

    def take(self, *, longest: bool) -> tuple[Question, Course]:
        """The row whose turn it is, and where to say what becomes of it.

        With a token budget rows go in their source's order, for those that it leaves out shall not be the
        short ones.
        """
        question, size = self._rows.take(longest=longest and self.dataset.settings.max_tokens is None)
        self._note()
        return question, self._outlook.admit(size)

    def close(self) -> None:
        """The token budget is spent: what has not been asked is left out."""
        self._is_closed = True
        for question, _ in self._rows.clear():
            self._leave_out(question)
        self._note()

    async def _until_room(self) -> None:
        while not self._is_closed and self._is_full:
            self._room.clear()
            await self._room.wait()

    async def _take(self, steps: Steps) -> None:
        name, tally = self.dataset.settings.name, self.dataset.tally
        tally.not_admitted += steps.not_admitted
        for question in steps.ready:
            if self._is_closed:
                self._leave_out(question)
            else:
                size = prompt_bytes(question.prompt.messages)
                self._rows.put((question, size), size)
        if steps.ready:
            self._news.set()
        letters = [
            *(unusable_row(name, row, sample, now_text()) for row, sample in steps.unusable),
            *(dead_turn(name, turn, now_text()) for turn in steps.dead),
        ]
        for letter in letters:
            await self._bury(self.dataset, letter)

    def _leave_out(self, question: Question) -> None:
        """The token budget has no room for a row, nor for the turns that follow it."""
        steps = self._conversations.settle(_row(question), NotAdmitted())
        self.dataset.tally.not_admitted += 1 + steps.not_admitted

    @property
    def _is_full(self) -> bool:
        ahead = len(self._rows) + self._conversations.branching
        return ahead >= _MOST_AHEAD or self._rows.size >= self._largest_ahead

    def _note(self) -> None:
        """Tells whoever waits for it that a row has gone."""
        if not self._is_full:
            self._room.set()
        if self.is_over:
            self._emptied.set()
        self._news.set()


def _nothing(_: str) -> None:
    """Whoever writes answers to the full volume says so already."""


def _row(question: Question) -> Row:
    return Row(question.key, question.sample)


def _close_accounts(dataset: OpenDataset) -> None:
    """Every row of the source has been met."""
    if dataset.tally.not_admitted:
        note_left_out(dataset.settings.folder, dataset.share, dataset.tally.not_admitted)


async def _in_batches(conversations: Iterator[list[SourceRow]]) -> AsyncIterator[list[SourceRow]]:
    """The same conversations, read off the event loop."""
    while batch := await asyncio.to_thread(lambda: list(islice(conversations, _BATCH))):
        for turns in batch:
            yield turns
