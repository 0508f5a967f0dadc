"""How requests share the places that there are: the caps of long ones and of all, and who goes first."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill_jobs.generate.endpoints import Endpoint
from draftmill_jobs.generate.limiter import Caps, Lease, Limiter, Size
from tests.support.endpoints import a_limiter, an_endpoint, lease

LONG, SHORT = Size.LONG, Size.SHORT


@pytest.fixture
def server() -> Endpoint:
    return an_endpoint()


async def wait_for(limiter: Limiter, *sizes: Size) -> list[asyncio.Task[Lease]]:
    """Requests that come in this order and take their places, or wait."""
    tasks = [asyncio.create_task(lease(limiter, size)) for size in sizes]
    await settled()
    return tasks


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def who_went(tasks: list[asyncio.Task[Lease]]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_leases_are_capped_handed_on_and_released_once() -> None:
    limiter = a_limiter(2, 2)
    first, second = await lease(limiter), await lease(limiter)
    late = asyncio.create_task(lease(limiter))
    again = asyncio.create_task(lease(limiter, first=True))
    await settled()
    assert limiter.waiting == 2
    first.release()
    with pytest.raises(RuntimeError, match="a lease on s0 is released twice"):
        first.release()
    await settled()
    assert again.done(), "a row that was asked before goes first"
    assert limiter.waiting == 1
    assert not late.done()
    limiter.set_caps(Caps(3, 3))
    with await late:
        pass
    second.release()
    (await again).release()
    leases = [await lease(limiter) for _ in range(3)]
    waiting = asyncio.create_task(lease(limiter))
    await settled()
    waiting.cancel()
    leases[0].release()
    await settled()
    (await lease(limiter)).release()
    assert limiter.leased == 2


async def test_a_place_that_was_given_to_a_task_that_ends_goes_to_the_next() -> None:
    limiter = a_limiter(1, 1)
    held = await lease(limiter)
    (ended, other) = await wait_for(limiter, LONG, LONG)
    held.release()
    ended.cancel()
    await settled()
    assert other.done()


async def test_a_request_waits_for_a_server_with_room_and_holds_no_other_place_meanwhile(
    server: Endpoint,
) -> None:
    limiter = a_limiter(4, 4)
    server.gate.set_cap(1)

    def choose() -> Endpoint | None:
        return server if server.gate.has_room(0.0) else None

    first = await limiter.lease(LONG, choose)
    waiting = asyncio.create_task(limiter.lease(LONG, choose))
    await settled()
    assert (waiting.done(), limiter.leased, server.gate.taken) == (False, 1, 1)
    first.release()
    await settled()
    assert waiting.done()
    another = asyncio.create_task(limiter.lease(SHORT, choose))
    await settled()
    server.gate.set_cap(2)
    limiter.look_again()
    await settled()
    assert another.done()
    assert server.gate.taken == 2


async def test_a_probe_goes_before_all_rows_and_to_a_server_without_room(server: Endpoint) -> None:
    limiter = a_limiter(1, 1)
    server.gate.set_cap(1)
    held = await limiter.lease(LONG, lambda: server)
    row = asyncio.create_task(limiter.lease(LONG, lambda: None, first=True))
    probe = asyncio.create_task(limiter.probe(server))
    await settled()
    assert not probe.done(), "it counts among the requests in flight"
    held.release()
    await settled()
    assert (probe.done(), row.done()) == (True, False)
    row.cancel()


async def test_short_ones_go_beyond_the_cap_that_holds_long_ones_back() -> None:
    limiter = a_limiter(2, 4)
    tasks = await wait_for(limiter, LONG, LONG, LONG, SHORT, SHORT, SHORT)
    assert who_went(tasks) == [True, True, False, True, True, False]


async def test_short_ones_alone_may_have_all_places() -> None:
    tasks = await wait_for(a_limiter(1, 3), SHORT, SHORT, SHORT, SHORT)
    assert who_went(tasks) == [True, True, True, False]


async def test_a_long_one_that_waits_for_any_place_goes_before_short_ones_that_came_later() -> None:
    limiter = a_limiter(2, 2)
    held = [await lease(limiter, SHORT), await lease(limiter, SHORT)]
    tasks = await wait_for(limiter, LONG, SHORT, SHORT)
    held[0].release()
    await settled()
    assert who_went(tasks) == [True, False, False]


async def test_a_place_of_a_short_one_is_not_for_a_long_one_above_its_cap() -> None:
    limiter = a_limiter(1, 2)
    await lease(limiter, LONG)
    short = await lease(limiter, SHORT)
    tasks = await wait_for(limiter, LONG, SHORT)
    short.release()
    await settled()
    assert who_went(tasks) == [False, True]


@pytest.mark.parametrize(
    ("caps", "went"),
    [
        (Caps(2, 2), [False, False, False]),
        (Caps(3, 3), [True, False, False]),
        (Caps(2, 4), [False, True, True]),
    ],
)
async def test_other_caps_are_in_force_at_once(caps: Caps, went: list[bool]) -> None:
    limiter = a_limiter(2, 2)
    await lease(limiter, LONG), await lease(limiter, LONG)
    tasks = await wait_for(limiter, LONG, SHORT, SHORT)
    limiter.set_caps(caps)
    await settled()
    assert who_went(tasks) == went


STEPS = st.lists(st.sampled_from([LONG, SHORT, "end of a long one", "end of a short one"]), max_size=40)


@given(st.integers(1, 4), st.integers(0, 3), STEPS)
@settings(max_examples=60)
def test_caps_are_never_passed_and_no_place_stays_empty_for_which_one_waits(
    long: int, beyond: int, steps: list[Size | str]
) -> None:
    async def play() -> None:
        limiter = a_limiter(long, long + beyond)
        held: dict[Size, list[Lease]] = {LONG: [], SHORT: []}
        waiting: dict[Size, list[asyncio.Task[Lease]]] = {LONG: [], SHORT: []}
        for step in steps:
            if isinstance(step, Size):
                waiting[step] += await wait_for(limiter, step)
            else:
                ended = held[LONG if step == "end of a long one" else SHORT]
                if ended:
                    ended.pop().release()
                await settled()
            for size, tasks in waiting.items():
                held[size] += [task.result() for task in tasks if task.done()]
                waiting[size] = [task for task in tasks if not task.done()]
            total = len(held[LONG]) + len(held[SHORT])
            assert len(held[LONG]) <= long
            assert total <= long + beyond
            assert not waiting[SHORT] or total == long + beyond
            assert not waiting[LONG] or len(held[LONG]) == long or total == long + beyond
        for task in (*waiting[LONG], *waiting[SHORT]):
            task.cancel()

    asyncio.run(play())
