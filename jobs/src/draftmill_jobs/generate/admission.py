"""From the datasets to requests: whose row is asked next, and when."""

from __future__ import annotations

import asyncio

from draftmill_jobs.generate.asking import Asker
from draftmill_jobs.generate.budget import Admission
from draftmill_jobs.generate.feeds import Feed
from draftmill_jobs.generate.limiter import Lease, Size
from draftmill_jobs.generate.order import urgency
from draftmill_jobs.generate.outlook import Course
from draftmill_jobs.generate.resume import OpenDataset
from draftmill_jobs.prompts.rows import Question
from draftmill_jobs.shared.settings import Share

_SET_ASIDE = 128  # long rows that wait for their place at once, while short ones behind them are asked


class Admissions:
    """Feeds every dataset's rows into one pool of requests.

    After a few scouts of each, the dataset with the longest answers goes first, and of its rows read ahead
    the longest prompts, so that what comes last is short. When a cap for short prompts is set,
    rows go in their order, but that short ones pass long ones for which there is no place yet.
    """

    def __init__(self, datasets: list[OpenDataset], asker: Asker, share: Share) -> None:
        self._news = asyncio.Event()
        self._feeds = [
            Feed(
                dataset,
                share,
                asker.board.outlook,
                news=self._news,
                datasets=len(datasets),
                bury=asker.bury,
            )
            for dataset in datasets
        ]
        self._asker = asker
        self._admitting: list[asyncio.Task[None]] = []
        self._rows: set[asyncio.Task[None]] = set()
        self._set_aside: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Returns when every row is settled, or after `stop` when those in flight are.

        Raises:
            JobError: A source or server makes it impossible.
        """
        async with asyncio.TaskGroup() as group:
            for feed in self._feeds:
                self._admitting.append(group.create_task(feed.read()))
            self._admitting.append(group.create_task(self._admit_all(group)))

    def stop(self) -> None:
        """Admits nothing more."""
        for task in (*self._admitting, *self._set_aside):
            task.cancel()
        self._asker.stop()

    def settled(self) -> None:
        """A row has its record or dead letter, which a token budget may have waited for."""
        self._news.set()

    def use_caps(self) -> None:
        """Other caps are in force."""
        self._news.set()

    def give_up(self) -> None:
        """Ends what is in flight too; those rows stay as they were."""
        for row in self._rows:
            row.cancel()

    async def _admit_all(self, group: asyncio.TaskGroup) -> None:
        while not all(feed.is_over for feed in self._feeds):
            self._news.clear()
            feed = self._most_urgent()
            if feed is None:
                await self._news.wait()
            else:
                await self._start(feed, group)

    def _most_urgent(self) -> Feed | None:
        """The dataset whose row is asked next; None while there is no row, or none that may be asked."""
        sizes_matter = self._asker.sizes_matter
        if self._set_aside and not sizes_matter:
            return None
        most_aside = max(1, _SET_ASIDE // len(self._feeds))
        ready = []
        for feed in self._feeds:
            if feed.has_row and feed.set_aside < most_aside:
                match feed.admission():
                    case Admission.YES:
                        ready.append(feed)
                    case Admission.NO:
                        feed.close()
                    case Admission.WAIT:
                        pass
        if len(ready) == 1:
            return ready[0]
        return max(ready, key=lambda feed: urgency(feed.standing), default=None)

    async def _start(self, feed: Feed, group: asyncio.TaskGroup) -> None:
        await self._asker.pool.until_up()
        await self._asker.until_few_wait()
        question, course = feed.take(longest=not self._asker.sizes_matter)
        size = await self._asker.size_of(feed.dataset, question)
        limiter = self._asker.limiter
        if size is Size.LONG and not limiter.has_room(size):
            feed.set_aside += 1
            task = group.create_task(self._ask_later(feed, question, course))
            self._set_aside.add(task)
            task.add_done_callback(self._set_aside.discard)
        else:
            lease = await self._asker.lease(feed.dataset, question, size)
            task = group.create_task(self._ask(feed, question, lease, course))
        self._rows.add(task)
        task.add_done_callback(self._rows.discard)

    async def _ask_later(self, feed: Feed, question: Question, course: Course) -> None:
        """Asks a long row when those before it have had their place."""
        lease = await self._asker.lease(feed.dataset, question, Size.LONG)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - runs in a task of its own
        self._set_aside.discard(task)
        feed.set_aside -= 1
        self._news.set()
        await self._ask(feed, question, lease, course)

    async def _ask(self, feed: Feed, question: Question, lease: Lease, course: Course) -> None:
        await feed.go_on(question, await self._asker.ask(feed.dataset, question, lease, course))
