"""The custom resources of this version: names, columns and rules that are not in the types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from draftmill_api.base import ApiModel, Rule
from draftmill_api.v1alpha1 import mutability
from draftmill_api.v1alpha1.draftertrain import DrafterTrain
from draftmill_api.v1alpha1.extractrun import ExtractRun
from draftmill_api.v1alpha1.synthrun import SynthRun


class ColumnType(StrEnum):
    """How kubectl prints a column."""

    TEXT = "string"
    INTEGER = "integer"
    AGE = "date"


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`; always a scalar field, never a list item by its position."""

    name: str
    path: str
    type: ColumnType
    description: str
    wide: bool = False


@dataclass(frozen=True)
class Resource:
    """A custom resource."""

    model: type[ApiModel]
    plural: str
    singular: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    fields: tuple[mutability.Field, ...]

    @property
    def kind(self) -> str:
        """The kind, as users write it."""
        return self.model.__name__

    @property
    def root_rules(self) -> tuple[Rule, ...]:
        """Rules that compare spec, old spec and status."""
        return mutability.rules(self.fields)


SYNTH_RUN: Final = Resource(
    model=SynthRun,
    plural="synthruns",
    singular="synthrun",
    short_names=("sr",),
    columns=(
        Column("PHASE", ".status.phase", ColumnType.TEXT, "Where the run is."),
        Column("DONE", ".status.progress.done", ColumnType.INTEGER, "Rows with a record."),
        Column("TOTAL", ".status.progress.total", ColumnType.INTEGER, "Rows to account for."),
        Column("ERRORS", ".status.progress.errors", ColumnType.INTEGER, "Rows in the dead letter."),
        Column("REQ/S", ".status.progress.requestsPerSecond", ColumnType.TEXT, "Finished rows per second."),
        Column("TOK/S", ".status.progress.tokensPerSecond", ColumnType.INTEGER, "Tokens per second."),
        Column(
            "AVG-TOK",
            ".status.progress.averageCompletionTokens",
            ColumnType.INTEGER,
            "Mean length of the answers in tokens.",
        ),
        Column("ETA", ".status.progress.eta", ColumnType.TEXT, "Time to the end."),
        Column("AGE", ".metadata.creationTimestamp", ColumnType.AGE, "Time since the run was created."),
        Column("SERVERS", ".status.servers.summary", ColumnType.TEXT, "Ready and wanted servers.", wide=True),
        Column("MODEL", ".spec.model.name", ColumnType.TEXT, "The target model.", wide=True),
        Column(
            "OUTPUT", ".status.plan.outputPath", ColumnType.TEXT, "Folder that the answers go to.", wide=True
        ),
        Column("REASON", ".status.reason", ColumnType.TEXT, "Reason of the phase.", wide=True),
    ),
    fields=mutability.SYNTH_RUN,
)

EXTRACT_RUN: Final = Resource(
    model=ExtractRun,
    plural="extractruns",
    singular="extractrun",
    short_names=("er",),
    columns=(
        Column("PHASE", ".status.phase", ColumnType.TEXT, "Where the run is."),
        Column("ROWS", ".status.progress.rows", ColumnType.INTEGER, "Rows in the store."),
        Column("TOTAL", ".status.progress.total", ColumnType.INTEGER, "Rows to store."),
        Column("TOKENS", ".status.progress.tokens", ColumnType.INTEGER, "Tokens in the store."),
        Column("SIZE", ".status.progress.size", ColumnType.TEXT, "Size of the store."),
        Column("TOK/S", ".status.progress.tokensPerSecond", ColumnType.INTEGER, "Tokens stored per second."),
        Column("ETA", ".status.progress.eta", ColumnType.TEXT, "Time to the end."),
        Column("AGE", ".metadata.creationTimestamp", ColumnType.AGE, "Time since the run was created."),
        Column(
            "QUARANTINED",
            ".status.progress.quarantined",
            ColumnType.INTEGER,
            "Rows whose states were refused for good.",
            wide=True,
        ),
        Column("SERVERS", ".status.servers.summary", ColumnType.TEXT, "Ready and wanted servers.", wide=True),
        Column("FROM", ".spec.from.synthRun.name", ColumnType.TEXT, "The earlier run.", wide=True),
        Column("REASON", ".status.reason", ColumnType.TEXT, "Reason of the phase.", wide=True),
    ),
    fields=mutability.EXTRACT_RUN,
)

DRAFTER_TRAIN: Final = Resource(
    model=DrafterTrain,
    plural="draftertrains",
    singular="draftertrain",
    short_names=("dt",),
    columns=(
        Column("PHASE", ".status.phase", ColumnType.TEXT, "Where the run is."),
        Column("EPOCH", ".status.progress.epoch", ColumnType.INTEGER, "Epoch that is being trained, from 1."),
        Column("STEP", ".status.progress.step", ColumnType.INTEGER, "Optimiser steps done."),
        Column("LOSS", ".status.progress.loss", ColumnType.TEXT, "Mean loss lately."),
        Column(
            "ACC-LEN",
            ".status.progress.acceptanceLength",
            ColumnType.TEXT,
            "Simulated acceptance length on held-out rows answered at temperature 0.",
        ),
        Column("TOK/S", ".status.progress.tokensPerSecond", ColumnType.INTEGER, "Tokens per second."),
        Column("ETA", ".status.progress.eta", ColumnType.TEXT, "Time to the end."),
        Column("AGE", ".metadata.creationTimestamp", ColumnType.AGE, "Time since the run was created."),
        Column("STEPS", ".status.progress.total", ColumnType.INTEGER, "Optimiser steps in all.", wide=True),
        Column(
            "AGREEMENT",
            ".status.progress.teacherAgreement",
            ColumnType.TEXT,
            "Agreement with the target's likeliest tokens, where every held-out answer was sampled.",
            wide=True,
        ),
        Column(
            "BEST", ".status.progress.best", ColumnType.TEXT, "The best of that figure so far.", wide=True
        ),
        Column(
            "MEASURED",
            ".status.evaluation.acceptanceLength",
            ColumnType.TEXT,
            "Acceptance length that a server counted.",
            wide=True,
        ),
        Column(
            "SPEEDUP",
            ".status.evaluation.ratio",
            ColumnType.TEXT,
            "Tokens per second with the drafter over those without it.",
            wide=True,
        ),
        Column("FROM", ".spec.from.extractRun.name", ColumnType.TEXT, "The earlier run.", wide=True),
        Column("REASON", ".status.reason", ColumnType.TEXT, "Reason of the phase.", wide=True),
    ),
    fields=mutability.DRAFTER_TRAIN,
)

RESOURCES: Final = (SYNTH_RUN, EXTRACT_RUN, DRAFTER_TRAIN)
