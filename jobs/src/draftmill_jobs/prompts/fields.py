"""Columns of a source under the names that rows are looked through for. Pure."""

from __future__ import annotations

from typing import Any, Final

import orjson

from draftmill_api.v1alpha1.source import Fields
from draftmill_jobs.prompts.shapes import UnusableRowError

_CONVERSATIONS: Final = ("messages", "conversations", "conversation", "prompt")


class Renaming:
    """Rows as they would be if their source used our names.

    Attributes:
        unseen: Of the fields that are given, those whose column no row had so far.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.unseen: dict[str, str] = fields.model_dump(exclude_none=True)
        self._is_needed = bool(self.unseen)

    def renamed(self, row: Any) -> Any:
        """The row under our names.

        Raises:
            UnusableRowError: It has no column where the prompt should be.
        """
        if not self._is_needed or not isinstance(row, dict):
            return row
        fields, renamed = self._fields, dict(row)
        for ours, theirs in (("messages", fields.messages), ("prompt", fields.prompt)):
            if theirs is not None:
                if (value := self._column(row, ours, theirs)) is None:
                    known = ", ".join(sorted(str(name) for name in row)) or "none"
                    raise UnusableRowError(
                        f"fields.{ours} is {theirs}, which is not among its fields ({known[:200]})"
                    )
                renamed = {name: row.get(name) for name in ("system", "tools")} | {ours: value}
        for ours, theirs in (("system", fields.system), ("tools", fields.tools)):
            if theirs is not None:
                renamed[ours] = self._column(row, ours, theirs)
        return self._with_turns(renamed)

    def _column(self, row: dict[str, Any], ours: str, theirs: str) -> Any:
        value: Any = row.get(theirs)
        if value is None:
            value = row
            for name in theirs.split("."):
                value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            self.unseen.pop(ours, None)
        return value

    def _with_turns(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the turns' fields under our names, and the system prompt as the first of them."""
        name = next((name for name in _CONVERSATIONS if row.get(name) is not None), None)
        turns = _parsed(row[name]) if name is not None else None
        if name is None or not isinstance(turns, list):
            return row
        turns = [self._turn(turn) for turn in turns]
        if self._fields.system is not None and row["system"] and not _starts_with_system(turns):
            turns.insert(0, {"role": "system", "content": row["system"]})
        return row | {name: turns}

    def _turn(self, turn: Any) -> Any:
        renamed = turn
        for ours, theirs in (("role", self._fields.role), ("content", self._fields.content)):
            if theirs is not None and isinstance(renamed, dict) and theirs in renamed:
                self.unseen.pop(ours, None)
                renamed = {name: value for name, value in renamed.items() if name not in (ours, theirs)}
                renamed = {ours: turn[theirs], **renamed}
        return renamed


def _parsed(value: Any) -> Any:
    """What JSON text holds; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _starts_with_system(turns: list[Any]) -> bool:
    first = turns[0] if turns else None
    return isinstance(first, dict) and first.get("role", first.get("from")) == "system"
