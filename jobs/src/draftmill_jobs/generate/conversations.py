"""The turns of conversations: which of them can be asked, and which wait for the one before. Pure.

Where every turn is a row, the model's own answers take the place of those in the source. So a turn is asked
when the one before it has its record, and conversations that begin alike share the rows of what they share.
Where the last turn alone is a row, a conversation has one turn, and none waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from draftmill_api.record import DeadLetter, Record, RecordStatus
from draftmill_jobs.prompts.rows import Question, SourceRow
from draftmill_jobs.prompts.shapes import Prompt

Message: TypeAlias = dict[str, Any]

_GOES_ON: Final = frozenset({RecordStatus.OK, RecordStatus.TRUNCATED})


class Row(NamedTuple):
    """A row by its prompt's key and the number of the sample."""

    key: str
    sample: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A turn has its record.

    Attributes:
        id: The record's.
        asked: The messages that the turn was asked with.
        said: The answer as a message; None when nobody could go on from it.
        status: The record's.
    """

    id: str
    asked: list[Message]
    said: Message | None
    status: RecordStatus


@dataclass(frozen=True, slots=True)
class Dead:
    """Nobody goes on from a turn.

    Attributes:
        id: The row that is the cause.
        reason: Of its dead letter, or its record's status.
        permanent: Asking it again cannot help.
    """

    id: str
    reason: str
    permanent: bool


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """A turn was left out: the token budget is spent."""


Outcome: TypeAlias = Answered | Dead | NotAdmitted


@dataclass(frozen=True, slots=True)
class DeadTurn:
    """A turn that cannot be asked for the sake of an earlier one."""

    row: SourceRow
    sample: int
    cause: Dead


@dataclass(slots=True)
class Steps:
    """What follows from the news.

    Attributes:
        ready: Turns to ask, with the messages to ask them with.
        unusable: Source rows without a prompt, each with the number of the sample.
        dead: Turns that cannot be asked.
        not_admitted: Number of turns that go with one that was left out.
    """

    ready: list[Question] = field(default_factory=list)
    unusable: list[tuple[SourceRow, int]] = field(default_factory=list)
    dead: list[DeadTurn] = field(default_factory=list)
    not_admitted: int = 0


class MissingTurnError(Exception):
    """A turn goes on from one of which nothing is known; the message is that one's key."""


class _Turn(NamedTuple):
    """A turn that goes on from another one, perhaps of an earlier conversation."""

    row: SourceRow
    sample: int
    before: SourceRow
    is_branch: bool


class Conversations:
    """The conversations of a dataset, on their way."""

    def __init__(self, branches: Mapping[str, int], earlier: Mapping[Row, Outcome]) -> None:
        """Takes what cannot be known from the conversations as they come.

        Args:
            branches: How many conversations share a turn with an earlier one and go on from it, by its key.
            earlier: What became of turns that were settled before and that others go on from.
        """
        self._branches = Counter(branches)
        self._earlier = dict(earlier)
        self._pending: set[Row] = set()
        self._waiting: defaultdict[Row, list[_Turn]] = defaultdict(list)
        self._branching = 0

    @property
    def branching(self) -> int:
        """Turns that wait for one of an earlier conversation."""
        return self._branching

    @property
    def waiting(self) -> int:
        """Turns that others wait for."""
        return len(self._waiting)

    def open(self, turns: Sequence[SourceRow], samples: Sequence[Sequence[int] | None]) -> Steps:
        """Takes a conversation in.

        Args:
            turns: Its turns in their order.
            samples: Of each turn, those to ask; None when an earlier conversation has the same turn.

        Raises:
            MissingTurnError: One of them goes on from a turn of which nothing is known.
        """
        steps = Steps()
        begins: list[tuple[_Turn, Outcome]] = []
        for place, (row, wanted) in enumerate(zip(turns, samples, strict=True)):
            if row.prompt is None:
                steps.unusable += [(row, sample) for sample in wanted or ()]
                continue
            for sample in wanted or ():
                self._pending.add(Row(row.key, sample))
            if place == 0:
                steps.ready += [
                    Question(row.key, row.position, sample, row.prompt, row.turn) for sample in wanted or ()
                ]
                continue
            before = turns[place - 1]
            is_branch = samples[place - 1] is None
            if wanted and is_branch:
                self._branches[before.key] -= 1
            for sample in wanted or ():
                earlier = Row(before.key, sample)
                if earlier in self._pending:
                    self._waiting[earlier].append(_Turn(row, sample, before, is_branch))
                    self._branching += is_branch
                else:
                    begins.append((_Turn(row, sample, before, is_branch), self._recall(earlier)))
        for turn, outcome in begins:
            self._begin(turn, outcome, steps)
        return steps

    def settle(self, row: Row, outcome: Outcome) -> Steps:
        """A turn has its record or dead letter, or was left out."""
        steps = Steps()
        self._settle(row, outcome, steps)
        return steps

    def _settle(self, row: Row, outcome: Outcome, steps: Steps) -> None:
        self._pending.discard(row)
        if self._branches[row.key] > 0:
            self._earlier[row] = outcome
        for turn in self._waiting.pop(row, ()):
            self._branching -= turn.is_branch
            self._begin(turn, outcome, steps)

    def _begin(self, turn: _Turn, outcome: Outcome, steps: Steps) -> None:
        row, sample = turn.row, turn.sample
        match outcome:
            case Answered():
                prompt = _prompt_after(outcome, turn)
                if prompt is None:
                    self._begin(turn, Dead(outcome.id, outcome.status, permanent=True), steps)
                else:
                    steps.ready.append(Question(row.key, row.position, sample, prompt, row.turn))
            case Dead():
                steps.dead.append(DeadTurn(row, sample, outcome))
                self._settle(Row(row.key, sample), outcome, steps)
            case NotAdmitted():
                steps.not_admitted += 1
                self._settle(Row(row.key, sample), outcome, steps)
            case _:
                assert_never(outcome)

    def _recall(self, row: Row) -> Outcome:
        outcome = self._earlier.get(row)
        if outcome is None:
            raise MissingTurnError(row.key)
        if self._branches[row.key] <= 0:
            del self._earlier[row]
        return outcome


def outcome_of(settled: Record | DeadLetter) -> Outcome:
    """What those who go on from a turn need of its record or dead letter."""
    if isinstance(settled, DeadLetter):
        return Dead(settled.id, settled.reason, settled.permanent)
    return answered(settled.id, settled.messages, settled.status, settled.reasoning, settled.content)


def answered(
    identity: str, asked: list[Message], status: RecordStatus, reasoning: str | None, content: str | None
) -> Answered:
    """What those who go on from a turn need of its record.

    The answer is passed on as its content, with the reasoning beside it: what becomes of that is up to the
    chat template.
    """
    said: Message | None = None
    if status in _GOES_ON and content:
        said = {"role": "assistant", "content": content}
        if reasoning:
            said["reasoning_content"] = reasoning
    return Answered(identity, asked, said, status)


def _prompt_after(answered: Answered, turn: _Turn) -> Prompt | None:
    """A turn's prompt with the model's own answers in it; None when the last of them is none to go on from.

    A call of a tool stays as it is in the source, for the result that follows is that of this very call.
    """
    prompt, before = turn.row.prompt, turn.before.prompt
    assert prompt is not None  # noqa: S101 - turns have prompts
    assert before is not None  # noqa: S101 - likewise
    since = prompt.messages[len(before.messages) :]
    answers = list(takewhile(lambda message: message["role"] == "assistant", since))
    rest = since[len(answers) :]
    if rest[0]["role"] == "tool":
        return Prompt([*answered.asked, *since], prompt.tools)
    if answered.said is None:
        return None
    return Prompt([*answered.asked, answered.said, *rest], prompt.tools)
