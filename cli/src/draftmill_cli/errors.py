"""The one error that a user of the command sees: a sentence, no traceback."""

from __future__ import annotations


class CliError(Exception):
    """The command cannot do what was asked. The message says what is wrong and what to do."""
