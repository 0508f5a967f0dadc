from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from draftmill_operator.kube.limiter import TokenBucket
from draftmill_operator.queue import Pass, RetryLater, WorkQueue
from draftmill_operator.run import SYNTHRUN, RunKey

ONE, TWO = RunKey(SYNTHRUN, "n", "one"), RunKey(SYNTHRUN, "n", "two")


@contextlib.asynccontextmanager
async def working(queue: WorkQueue, make_pass: Pass) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(queue.work(make_pass)) for _ in range(2)]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool], within: float = 5) -> None:
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110  a condition of any kind, looked at until the deadline
            await asyncio.sleep(0.001)


async def test_calls_before_a_pass_begins_are_one() -> None:
    queue, passes = WorkQueue(), []
    for _ in range(100):
        queue.add(ONE)

    async def note(key: RunKey) -> None:
        passes.append(key)

    async with working(queue, note):
        queue.add(TWO)
        await until(lambda: TWO in passes)
    assert passes == [ONE, TWO]


async def test_a_key_is_never_in_two_passes_and_a_call_during_one_leads_to_another() -> None:
    queue = WorkQueue()
    gate, begun, at_once, most = asyncio.Event(), 0, 0, 0

    async def hold(key: RunKey) -> None:
        nonlocal begun, at_once, most
        begun, at_once = begun + 1, at_once + 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1

    async with working(queue, hold):
        queue.add(ONE)
        await until(lambda: begun == 1)
        queue.add(ONE)
        queue.add(ONE)
        gate.set()
        await until(lambda: begun == 2)
    assert most == 1


async def test_different_keys_are_in_passes_at_once() -> None:
    queue, begun, gate = WorkQueue(), set(), asyncio.Event()

    async def hold(key: RunKey) -> None:
        begun.add(key)
        await gate.wait()

    async with working(queue, hold):
        queue.add(ONE)
        queue.add(TWO)
        await until(lambda: begun == {ONE, TWO})


@pytest.mark.parametrize("error", [RetryLater("quota"), KeyError("bug")])
async def test_a_failed_pass_is_repeated(error: Exception) -> None:
    queue, tries = WorkQueue(), 0

    async def fail_once(key: RunKey) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise error

    async with working(queue, fail_once):
        queue.add(ONE)
        await until(lambda: tries == 2)


async def test_a_pass_can_ask_for_a_later_look_and_an_event_comes_before_it() -> None:
    queue, passes = WorkQueue(), 0

    async def ask(key: RunKey) -> float | None:
        nonlocal passes
        passes += 1
        return {1: 0.0, 2: 0.01, 3: 3600.0}.get(passes)

    async with working(queue, ask):
        queue.add(ONE)
        await until(lambda: passes == 3)
        queue.add(ONE)
        await until(lambda: passes == 4)


async def test_the_bucket_lets_a_burst_pass_and_then_the_rate() -> None:
    now, slept = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(round(seconds, 6))
        now += seconds

    bucket = TokenBucket(rate=10, burst=2, clock=lambda: now, sleep=sleep)
    for _ in range(4):
        await bucket.take()
    assert slept == [0.1, 0.1]
