"""Building ahead of the steps that need it."""

from __future__ import annotations

import pytest

from draftmill_dev.demo import ahead
from draftmill_dev.errors import DevError


def test_builds_run_one_after_the_other_in_the_background() -> None:
    built: list[str] = []
    ahead.begin([lambda: built.append("first"), lambda: built.append("second")]).join(10)
    assert built == ["first", "second"]


def test_a_failed_build_is_left_to_the_step_that_needs_it(capfd: pytest.CaptureFixture[str]) -> None:
    built: list[str] = []

    def fail() -> None:
        raise DevError("no network")

    ahead.begin([lambda: built.append("first"), fail, lambda: built.append("third")]).join(10)
    assert built == ["first"]
    assert capfd.readouterr() == ("", "")
