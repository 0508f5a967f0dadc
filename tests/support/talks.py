"""Conversations, some of which begin alike."""

from __future__ import annotations

from typing import Any

from draftmill_api.record import prompt_key
from tests.support.job import Job, unique


def talk(*questions: str) -> dict[str, Any]:
    """A conversation with these questions, each answered by the source."""
    messages = [
        {"role": role, "content": words}
        for question in questions
        for role, words in (("user", question), ("assistant", "w999"))
    ]
    return {"messages": messages}


def talks(count: int) -> list[dict[str, Any]]:
    """Conversations of one to four turns; every fifth begins as the one before it does."""
    made: list[list[str]] = []
    for number in range(count):
        words = [f"w{number // 30} w{turn} w{number % 30}" for turn in range(1 + number % 4)]
        made.append([*made[-1][:1], *words] if number % 5 == 4 else words)
    return [talk(*words) for words in made]


def turns_of(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    """The key of every turn, each with that of the turn before it."""
    before: dict[str, str | None] = {}
    for row in rows:
        earlier = None
        for end in range(1, len(row["messages"]), 2):
            key = prompt_key(row["messages"][:end], None, {})
            before[key], earlier = earlier, key
    return before


def check_histories(job: Job, dataset: str = "A", samples: int = 1) -> None:
    """Every turn has its one record, which was asked with its sample's own answers before it."""
    before, lines = turns_of(job.datasets[dataset]), job.lines(dataset=dataset)
    records = {(line["prompt_key"], line["sample"]): line for line in lines}
    assert len(unique(lines)) == len(records) == len(before) * samples
    for (key, sample), line in records.items():
        earlier = before[key]
        if earlier is None:
            history: list[dict[str, Any]] = []
        else:
            record = records[earlier, sample]
            history = [*record["messages"], {"role": "assistant", "content": record["content"]}]
        assert line["messages"][:-1] == history
        assert line["turn"] == len(history) // 2
        assert line["id"] == f"{key}-t{line['turn']}" + (f"-s{sample}" if sample else "")
        assert line["prompt_ids"] == job.model.prompt_ids(line["messages"])
