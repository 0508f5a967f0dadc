"""From the sources to requests: which row is asked next, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice

from draftmill_api.record import row_id
from draftmill_jobs.generate.asking import Asker, now_text
from draftmill_jobs.generate.budget import Admission, TokenBudget
from draftmill_jobs.generate.limiter import Size
from draftmill_jobs.generate.records import unusable_row
from draftmill_jobs.generate.resume import OpenDataset, leave_out_strangers
from draftmill_jobs.prompts.rows import Question, SourceRow, owns, read_rows
from draftmill_jobs.shared.left_out import note_left_out
from draftmill_jobs.shared.settings import Share

_BATCH = 128  # source rows read at once, off the event loop
_SET_ASIDE = 128  # long rows that wait for their place at once, while short ones behind them are asked


class Admissions:
    """Feeds every dataset's rows into one pool of requests.

    The datasets come one after another without a gap: the next begins when the one before is read through, or
    waits for its token budget. Rows are asked in their order, but that short ones go past long ones for which
    there is no place yet.
    """

    def __init__(self, datasets: list[OpenDataset], asker: Asker, share: Share) -> None:
        self._feeds = [_Feed(dataset, share) for dataset in datasets]
        self._asker = asker
        self._feeders: list[asyncio.Task[None]] = []
        self._rows: set[asyncio.Task[None]] = set()
        self._set_aside: set[asyncio.Task[None]] = set()
        self._some_go = asyncio.Event()

    async def run(self) -> None:
        """Returns when every row is settled, or after `stop` when those in flight are.

        Raises:
            JobError: A source or server makes it impossible.
        """
        turns = [asyncio.Event() for _ in range(len(self._feeds) + 1)]
        turns[0].set()
        async with asyncio.TaskGroup() as group:
            for feed, turn, next_turn in zip(self._feeds, turns, turns[1:], strict=False):
                self._feeders.append(group.create_task(self._admit_all(feed, group, turn, next_turn)))

    def stop(self) -> None:
        """Admits nothing more."""
        for task in (*self._feeders, *self._set_aside):
            task.cancel()
        self._asker.stop()

    def use_caps(self) -> None:
        """Other caps are in force."""
        self._some_go.set()

    def give_up(self) -> None:
        """Ends what is in flight too; those rows stay as they were."""
        for row in self._rows:
            row.cancel()

    async def _admit_all(
        self, feed: _Feed, group: asyncio.TaskGroup, turn: asyncio.Event, next_turn: asyncio.Event
    ) -> None:
        await turn.wait()
        async for row in _in_batches(read_rows(feed.dataset.settings)):
            for sample in feed.samples_to_do(row):
                if row.prompt is None:
                    await self._bury(feed, row, sample)
                elif await self._fits(feed, next_turn):
                    await self._start(feed, group, Question(row.key, row.position, sample, row.prompt))
                else:
                    feed.dataset.tally.not_admitted += 1
        await asyncio.to_thread(_close_accounts, feed.dataset)
        next_turn.set()

    async def _bury(self, feed: _Feed, row: SourceRow, sample: int) -> None:
        feed.admitted += 1
        letter = unusable_row(feed.dataset.settings.name, row, sample, now_text())
        await self._asker.bury(feed.dataset, letter)

    async def _start(self, feed: _Feed, group: asyncio.TaskGroup, question: Question) -> None:
        await self._asker.pool.until_up()
        await self._asker.until_few_wait()
        size = await self._asker.size_of(feed.dataset, question)
        limiter = self._asker.limiter
        if size is Size.LONG and not limiter.has_room(size):
            await self._until_few_are_set_aside()
            feed.admitted += 1
            task = group.create_task(self._ask_later(feed, question))
            self._set_aside.add(task)
            task.add_done_callback(self._set_aside.discard)
        else:
            lease = await limiter.lease(size)
            feed.admitted += 1
            task = group.create_task(self._asker.ask(feed.dataset, question, lease))
        self._rows.add(task)
        task.add_done_callback(self._rows.discard)

    async def _ask_later(self, feed: _Feed, question: Question) -> None:
        """Asks a long row when those before it have had their place."""
        lease = await self._asker.limiter.lease(Size.LONG)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - runs in a task of its own
        self._set_aside.discard(task)
        self._some_go.set()
        await self._asker.ask(feed.dataset, question, lease)

    async def _until_few_are_set_aside(self) -> None:
        while len(self._set_aside) >= (_SET_ASIDE if self._asker.sizes_matter else 1):
            self._some_go.clear()
            await self._some_go.wait()

    async def _fits(self, feed: _Feed, next_turn: asyncio.Event) -> bool:
        """Whether the dataset's token budget has room for one more row; waits while that is open."""
        while (admission := feed.admission()) is Admission.WAIT:
            next_turn.set()
            await self._asker.until_settled()
        return admission is Admission.YES


class _Feed:
    """One dataset on its way into the pool."""

    def __init__(self, dataset: OpenDataset, share: Share) -> None:
        settings = dataset.settings
        self.dataset = dataset
        self.admitted = 0
        self._share = share
        self._settled_before = dataset.tally.done + dataset.tally.errors
        cap = None if settings.max_tokens is None else share.of_tokens(settings.max_tokens)
        self._budget = TokenBudget(cap, settings.sampling.max_completion_tokens)

    def admission(self) -> Admission:
        """What the token budget says about one more row."""
        tally = self.dataset.tally
        settled = tally.done + tally.errors - self._settled_before
        return self._budget.admits(
            tokens=tally.completion_tokens, records=tally.done, in_flight=self.admitted - settled
        )

    def samples_to_do(self, row: SourceRow) -> list[int]:
        """The samples of a row that are this worker's and not settled; those of a duplicate are skipped."""
        dataset = self.dataset
        samples = range(dataset.settings.sampling.samples_per_prompt)
        mine = [sample for sample in samples if owns(self._share, row_id(row.key, sample))]
        if not dataset.table.meet(row.key):
            dataset.tally.skipped += len(mine)
            return []
        return [sample for sample in mine if not dataset.table.is_settled(row_id(row.key, sample))]


def _close_accounts(dataset: OpenDataset) -> None:
    """Every row of the source has been met."""
    if dataset.settings.max_tokens is None:
        leave_out_strangers(dataset)
    elif dataset.tally.not_admitted:
        note_left_out(dataset.settings.folder, dataset.share, dataset.tally.not_admitted)


async def _in_batches(rows: Iterator[SourceRow]) -> AsyncIterator[SourceRow]:
    """The same rows, read off the event loop."""
    while batch := await asyncio.to_thread(lambda: list(islice(rows, _BATCH))):
        for row in batch:
            yield row
