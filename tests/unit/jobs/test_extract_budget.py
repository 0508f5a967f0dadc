"""Back-pressure by tokens, and what a row's failures cost it."""

from __future__ import annotations

import asyncio

import pytest

from draftmill_jobs.extract.budget import TokenBudget
from draftmill_jobs.extract.chances import Chances, Failure, Next


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_rows_wait_until_their_tokens_fit() -> None:
    budget = TokenBudget(lambda: 10)
    first = await budget.acquire(6)
    second = asyncio.create_task(budget.acquire(5))
    await settle()
    assert not second.done()

    budget.release(first)

    assert await second == 5
    assert budget.taken == 5


async def test_a_row_longer_than_the_budget_goes_alone() -> None:
    budget = TokenBudget(lambda: 10)
    small = await budget.acquire(1)
    long = asyncio.create_task(budget.acquire(25))
    after = asyncio.create_task(budget.acquire(1))
    await settle()
    assert not long.done()
    assert not after.done()  # it may not overtake, or the long one would wait for ever

    budget.release(small)
    taken = await long
    await settle()
    assert not after.done()

    budget.release(taken)
    assert await after == 1


async def test_a_row_that_shall_go_alone_does_though_it_is_short() -> None:
    budget = TokenBudget(lambda: 10)
    taken = await budget.acquire(1, alone=True)
    other = asyncio.create_task(budget.acquire(1))
    await settle()
    assert not other.done()

    budget.release(taken)

    await other


async def test_a_row_that_stops_waiting_leaves_the_way_free() -> None:
    budget = TokenBudget(lambda: 10)
    first = await budget.acquire(5)
    long = asyncio.create_task(budget.acquire(10))
    short = asyncio.create_task(budget.acquire(5))
    await settle()

    long.cancel()

    assert await short == 5
    budget.release(first)
    budget.release(5)
    assert budget.taken == 0


def test_a_row_is_given_up_after_its_retries() -> None:
    chances, failure = Chances(), Failure("not_a_number", "")

    assert [chances.after_failure(failure, retries=2) for _ in range(3)] == [
        Next.LATER,
        Next.LATER,
        Next.GIVE_UP,
    ]


def test_a_row_that_cannot_be_helped_is_given_up_at_once() -> None:
    assert Chances().after_failure(Failure("bad_request", "", is_final=True), retries=9) is Next.GIVE_UP


def test_a_row_in_whose_company_servers_die_goes_alone_and_is_given_up_only_then() -> None:
    chances = Chances()

    found = [chances.after_loss() for _ in range(7)]

    assert found == [Next.NOW, Next.ALONE, Next.NOW, Next.NOW, Next.NOW, Next.NOW, Next.GIVE_UP]


@pytest.mark.parametrize("losses", [1, 2, 5])
def test_lost_servers_cost_no_try(losses: int) -> None:
    chances = Chances()
    for _ in range(losses):
        chances.after_loss()

    assert chances.after_failure(Failure("all_zero", ""), retries=1) is Next.LATER
