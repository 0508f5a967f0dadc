"""What people see of a step."""

from __future__ import annotations

import io

import pytest

from draftmill_dev import console


class Terminal(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with console.step("Making tea", stream) as step:
        step.note("boiling water")
    began, note, ended = stream.getvalue().splitlines()
    assert (began, note) == ("... Making tea", "    boiling water")
    assert ended.startswith("✓ Making tea (0.")


def test_a_failed_step_is_marked_and_the_error_goes_on() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="no water"), console.step("Making tea", stream):
        raise ValueError("no water")
    assert "✗ Making tea" in stream.getvalue()


def test_a_terminal_ends_with_one_line_for_the_step() -> None:
    stream = Terminal()
    with console.step("Making tea", stream):
        pass
    assert stream.getvalue().rsplit("\x1b[2K", 1)[-1].startswith("✓ Making tea")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12, "12 s"), (255, "4 min 15 s"), (3900, "1 h 5 min")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text
