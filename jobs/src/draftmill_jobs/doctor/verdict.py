"""What a check says, and which stage all of them together point to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Where a fault comes from."""

    STORE = "store"
    """Files have changed since they were written."""
    TARGET = "target"
    """Store, drafter and target do not belong together."""
    EXTRACTION = "extraction"
    """States are not those of the row's tokens, layers or norm."""
    MASK = "loss mask"
    VOCABULARY = "draft vocabulary"
    EXPORT = "export"
    """The drafter's config says something else than it was trained with."""
    TRAINING = "training"


class Outcome(StrEnum):
    """What a check found."""

    FINE = "fine"
    WORTH_A_LOOK = "worth a look"
    WRONG = "wrong"
    NOT_LOOKED_AT = "not looked at"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, with figures; what is wrong with it."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check says.

    Attributes:
        check: Its name.
        stage: That is to blame when something is wrong.
    """

    check: str
    stage: Stage
    finding: Finding


class NotLookedAtError(Exception):
    """A check lacks something to look at; the message says what."""


def wrong_stage(verdicts: Sequence[Verdict]) -> Stage | None:
    """The stage of the first check that found something wrong: checks follow the way that data take."""
    return next((verdict.stage for verdict in verdicts if verdict.finding.outcome is Outcome.WRONG), None)
