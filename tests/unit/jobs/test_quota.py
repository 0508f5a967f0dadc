"""Requests and tokens per minute: how fast rows go, whatever their answers turn out to be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_jobs.generate.limiter import Caps, Limiter, Size
from draftmill_jobs.generate.quota import Quota, Rate
from tests.support.endpoints import an_endpoint


def times(rate: Rate, costs: Iterator[float], seconds: float) -> list[tuple[float, float]]:
    """When requests go that come as fast as they may, and what each costs."""
    now, went = 0.0, []
    while (now := now + rate.wait(now)) < seconds:
        cost = next(costs)
        rate.spend(cost, now)
        went.append((now, cost))
    return went


def always(cost: float) -> Iterator[float]:
    while True:
        yield cost


@pytest.mark.parametrize(("per_minute", "at_once"), [(6, 1), (60, 1), (600, 10), (60_000, 1000)])
def test_requests_are_spread_evenly_but_for_a_seconds_worth(per_minute: float, at_once: int) -> None:
    went = [now for now, _ in times(Rate(per_minute), always(1.0), 180.0)]
    assert sum(now == 0.0 for now in went) == at_once
    assert 3 * per_minute <= len(went) <= 3 * per_minute + at_once


@given(st.floats(1, 100_000), st.lists(st.floats(1, 5000), min_size=1, max_size=50))
def test_no_minute_begins_more_than_its_units_a_second_more_and_one_request(
    per_minute: float, costs: list[float]
) -> None:
    rate, now, went = Rate(per_minute), 0.0, []
    for cost in costs:
        now += rate.wait(now)
        rate.spend(cost, now)
        went.append((now, cost))
    for start, _ in went:
        begun = sum(cost for moment, cost in went if start <= moment < start + 60.0)
        assert begun <= per_minute * (1 + 1 / 60) + max(costs) + 1e-6 * per_minute


def test_a_raised_rate_holds_for_what_is_owed_too() -> None:
    rate = Rate(60.0)
    rate.spend(8192, 0.0)
    assert rate.wait(0.0) == 8192
    rate.change(600_000.0, 0.0)
    assert rate.wait(0.0) == 0.0


def test_answers_are_charged_what_they_are_expected_to_take_and_then_what_they_took() -> None:
    quota = Quota(None, 60_000, longest=8000)
    assert quota.charge(0.0) == 8000, "the first, as long as it may be"
    assert quota.wait(0.0) == pytest.approx(7.0, abs=0.01)
    quota.settle(8000, 500, 0.0)
    assert quota.wait(0.0) == 0.0, "it took less, which is given back"
    assert quota.charge(0.0) == 4250, "the mean of both"
    quota.settle(4250, 12_500, 0.0)
    assert quota.wait(0.0) == pytest.approx(12.0, abs=0.01), "one that took more is owed"


def test_what_is_given_back_is_no_credit_for_later() -> None:
    quota = Quota(None, 60_000, longest=8000)
    charged = quota.charge(0.0)
    quota.settle(charged, 0, 100.0)
    quota.charge(100.0)
    assert quota.wait(100.0) > 0


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ((6.0, None), (None, None), False),
        ((None, None), (6.0, None), True),
        ((6.0, None), (12.0, None), True),
    ],
    ids=["no longer limited", "limited from now on", "limited otherwise"],
)
def test_other_limits_are_in_force_at_once(
    before: tuple[float | None, float | None], after: tuple[float | None, float | None], *, waits: bool
) -> None:
    quota = Quota(*before, longest=1)
    quota.charge(0.0)
    quota.change(*after, now=0.0)
    if before == (None, None):
        quota.charge(0.0)
    assert (quota.wait(0.0) > 0) is waits


async def test_rows_wait_for_their_turn_in_their_order_and_a_raised_limit_ends_the_wait() -> None:
    loop, server = asyncio.get_running_loop(), an_endpoint()
    quota = Quota(60.0, None, longest=1)
    limiter = Limiter(Caps(9, 9), quota, loop.time)
    await limiter.lease(Size.LONG, lambda: server)
    waiting = [asyncio.create_task(limiter.lease(Size.LONG, lambda: server)) for _ in range(3)]
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False] * 3
    quota.change(6000.0, None, loop.time())
    limiter.look_again()
    async with asyncio.timeout(0.5):
        await asyncio.gather(*waiting)
    assert server.gate.taken == 4
