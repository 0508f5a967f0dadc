"""The error policy without a worker: what counts, what is said, and when rows are held back."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.v1alpha1.generation import ErrorPolicy
from draftmill_jobs.generate.error_policy import ErrorWindow, FailedRow, Verdict, figures, judge
from draftmill_jobs.generate.guard import Guard, WhenPaused
from draftmill_jobs.generate.limiter import Caps, Hold, Limiter
from tests.support.endpoints import a_limiter, lease


def failed(reason: str = "server_error", identity: str = "k") -> FailedRow:
    return FailedRow(reason, identity, f"HTTP 500 for {identity}")


def window_of(outcomes: str, length: int) -> ErrorWindow:
    """`.` is an answered row, `x` a failed one."""
    window = ErrorWindow(length)
    for outcome in outcomes:
        window.add(failed() if outcome == "x" else None)
    return window


SHARES = [
    ("nothing was asked", "", 10, Verdict.FINE),
    ("as many as the warning allows", "x" + 49 * ".", 50, Verdict.FINE),
    ("more than the warning allows", "xx" + 48 * ".", 50, Verdict.WARN),
    ("as many as the pause allows", 5 * "x" + 95 * ".", 100, Verdict.WARN),
    ("more than the pause allows", 6 * "x" + 94 * ".", 100, Verdict.PAUSE),
    ("missing rows count as good", 5 * "x", 100, Verdict.WARN),
    ("a window that is not full can trip too", 6 * "x", 100, Verdict.PAUSE),
    ("what is older than the window is forgotten", 50 * "x" + 100 * ".", 100, Verdict.FINE),
]


@pytest.mark.parametrize(
    ("outcomes", "length", "expected"), [case[1:] for case in SHARES], ids=[case[0] for case in SHARES]
)
def test_the_share_of_failed_rows_decides(outcomes: str, length: int, expected: Verdict) -> None:
    policy = ErrorPolicy(warn_percent=2, pause_percent=5, window=length)
    assert judge(window_of(outcomes, length), policy) is expected


def test_a_hundred_percent_never_pauses_and_nothing_allows_nothing() -> None:
    assert judge(window_of(20 * "x", 10), ErrorPolicy(pause_percent=100, window=10)) is Verdict.WARN
    strict = ErrorPolicy(warn_percent=0, pause_percent=0, window=1000)
    assert judge(window_of("x", 1000), strict) is Verdict.PAUSE
    assert judge(window_of(".", 1000), strict) is Verdict.FINE


@given(st.text("x.", max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_a_window_counts_what_a_list_of_the_last_outcomes_counts(
    outcomes: str, length: int, other: int
) -> None:
    window = window_of(outcomes, length)
    last = outcomes[-length:]
    assert (window.errors, window.asked) == (last.count("x"), len(last))
    window.set_length(other)
    assert window.errors == last[-other:].count("x")


def test_the_figures_name_the_most_frequent_reason_and_its_last_row() -> None:
    window = ErrorWindow(50)
    for number, reason in enumerate(("stalled", "server_error", "bad_request", "server_error", "stalled")):
        window.add(failed(reason, f"row-{number}"))
    window.add(failed("server_error", "row-9"))
    for _ in range(4):
        window.add(None)
    assert figures(window, "warnPercent is 2") == (
        "6 of the last 10 asked rows failed, 12 % of a window of 50 (warnPercent is 2); most often "
        "server_error (3), for example row row-9 (HTTP 500 for row-9)"
    )


def test_reasons_that_left_the_window_are_not_named() -> None:
    window = ErrorWindow(3)
    for reason in ("stalled", "stalled", "aborted", "aborted", "server_error"):
        window.add(failed(reason))
    assert (window.most_frequent()[0].reason, window.most_frequent()[1]) == ("aborted", 2)


TEN = ErrorPolicy(warn_percent=10, pause_percent=20, window=10)


def guard(when: WhenPaused = WhenPaused.WAIT) -> tuple[Guard, Limiter]:
    limiter = a_limiter(4, 4)
    return Guard(limiter, TEN, "", when), limiter


def fail(guard: Guard, rows: int) -> None:
    for number in range(rows):
        guard.failed("server_error", f"row-{number}", "HTTP 500")


async def is_admitted(limiter: Limiter) -> bool:
    waiting = asyncio.ensure_future(lease(limiter))
    await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        return False
    waiting.result().release()
    return True


async def test_a_tripped_policy_admits_nothing_and_says_why_and_what_to_do() -> None:
    watched, limiter = guard()
    fail(watched, 2)
    assert (watched.paused, watched.warning != "") == ("", True)
    assert await is_admitted(limiter)
    fail(watched, 1)
    assert not await is_admitted(limiter)
    assert watched.paused == (
        "paused: 3 of the last 3 asked rows failed, 30 % of a window of 10 (pausePercent is 20); most often "
        "server_error (3), for example row row-0 (HTTP 500). Remedy: look in the server's log for the error "
        "behind it; then raise generation.errorPolicy.pausePercent, or set another resumeToken"
    )


async def test_answers_that_come_in_after_a_pause_do_not_end_it() -> None:
    watched, limiter = guard()
    fail(watched, 3)
    for _ in range(10):
        watched.answered()
    assert watched.recent_errors == 0
    assert not await is_admitted(limiter)
    watched.use(TEN, "")
    assert not await is_admitted(limiter), "another config with the same policy is no word to go on"


CHANGES = [
    ("raised enough", TEN.model_copy(update={"pause_percent": 30}), "", True, 3),
    ("not raised enough", TEN.model_copy(update={"pause_percent": 29}), "", False, 3),
    ("a longer window", TEN.model_copy(update={"window": 15}), "", True, 3),
    ("another token", TEN, "again", True, 0),
]


@pytest.mark.parametrize(
    ("policy", "token", "goes_on", "errors"),
    [case[1:] for case in CHANGES],
    ids=[case[0] for case in CHANGES],
)
async def test_what_lets_a_paused_worker_go_on(
    policy: ErrorPolicy, token: str, *, goes_on: bool, errors: int
) -> None:
    watched, limiter = guard()
    fail(watched, 3)
    watched.use(policy, token)
    assert await is_admitted(limiter) is goes_on
    assert bool(watched.paused) is not goes_on
    assert watched.recent_errors == errors


async def test_a_policy_that_is_not_raised_enough_is_told_with_its_new_figure() -> None:
    watched, _ = guard()
    fail(watched, 3)
    watched.use(TEN.model_copy(update={"pause_percent": 29}), "")
    assert "30 % of a window of 10 (pausePercent is 29)" in watched.paused


async def test_a_worker_that_went_on_can_trip_again() -> None:
    watched, limiter = guard()
    fail(watched, 3)
    watched.use(TEN, "again")
    assert watched.warning == ""
    fail(watched, 3)
    assert not await is_admitted(limiter)


async def test_a_lowered_policy_trips_by_what_has_failed_already() -> None:
    watched, limiter = guard()
    fail(watched, 2)
    watched.use(TEN.model_copy(update={"pause_percent": 19}), "")
    assert not await is_admitted(limiter)


async def test_a_worker_that_is_about_to_exit_says_how_to_start_it_again_and_stays_with_it() -> None:
    watched, limiter = guard(WhenPaused.EXIT)
    fail(watched, 3)
    assert "then run again, with a higher generation.errorPolicy.pausePercent" in watched.paused
    watched.use(TEN, "again")
    assert not await is_admitted(limiter)


async def test_rows_that_wait_for_a_lease_stay_where_they_are_until_nothing_holds_them() -> None:
    limiter = a_limiter(1, 1)
    held = await lease(limiter)
    waiting = asyncio.ensure_future(lease(limiter))
    await asyncio.sleep(0)
    limiter.pause(Hold.ERROR_POLICY)
    limiter.pause(Hold.STORAGE_FULL)
    held.release()
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.set_caps(Caps(5, 5))
    limiter.resume(Hold.ERROR_POLICY)
    await asyncio.sleep(0)
    assert not waiting.done()
    limiter.resume(Hold.STORAGE_FULL)
    (await waiting).release()
