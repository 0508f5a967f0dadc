"""What a failed request costs its row."""

from __future__ import annotations

import random

import pytest

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.generate.tries import Next, Tries

LATER, NOW, GIVE_UP = Next.LATER, Next.NOW, Next.GIVE_UP


def failure(kind: FailureKind, retry_after: float | None = None) -> RequestFailedError:
    return RequestFailedError(kind, "made to fail", retry_after=retry_after)


@pytest.mark.parametrize(
    ("kind", "is_lost", "follows"),
    [
        (FailureKind.SERVER_ERROR, False, [LATER, LATER, GIVE_UP]),
        (FailureKind.TIMEOUT_STALL, False, [LATER, LATER, GIVE_UP]),
        (FailureKind.BAD_REQUEST, False, [GIVE_UP]),
        (FailureKind.CONNECTION_LOST, True, [NOW] * 16 + [LATER, LATER, GIVE_UP]),
        (FailureKind.OVERLOADED, False, [LATER] * 18 + [GIVE_UP]),
        (FailureKind.OVERLOADED, True, [NOW] * 16 + [LATER, LATER, GIVE_UP]),
    ],
)
def test_what_is_the_servers_doing_costs_a_row_no_try_until_it_may_be_the_row(
    kind: FailureKind, is_lost: bool, follows: list[Next]
) -> None:
    tries = Tries()
    assert [tries.after(failure(kind), is_lost=is_lost, retries=2) for _ in follows] == follows
    assert tries.spent == len(follows)


def test_a_row_waits_itself_for_what_failed_and_its_servers_gate_for_what_was_refused() -> None:
    tries, rng = Tries(failed=1), random.Random(1)
    assert 30 <= tries.pause(failure(FailureKind.TRY_AGAIN, retry_after=30), rng) <= 31
    assert tries.pause(failure(FailureKind.OVERLOADED, retry_after=30), rng) <= 1
