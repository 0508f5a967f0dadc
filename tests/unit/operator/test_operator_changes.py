"""What an edit of each field does to servers and workers, held against the table of what it shall do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from draftmill_api.v1alpha1 import mutability
from draftmill_api.v1alpha1.mutability import Change, change_of
from draftmill_api.v1alpha1.synthrun import SynthRunSpec
from draftmill_operator.kinds.base import AnyKind
from draftmill_operator.kinds.draftertrain import DrafterTrainKind
from draftmill_operator.kinds.extractrun import ExtractRunKind
from draftmill_operator.render.server import server_template, template_hash
from tests.support.changed_fields import merged
from tests.support.draftertrains import smallest_drafter_train
from tests.support.extractruns import smallest_extract_run
from tests.support.spec_changes import EXTRACT_CHANGES, GIVEN, SYNTH_CHANGES, SYNTH_SPEC, TRAIN_CHANGES
from tests.support.synthruns import Manifest, smallest_synth_run
from tests.unit.operator.builders import IDENTITY, SYNTH
from tests.unit.operator.test_operator_rendering import DEFAULTS

MOVES = {
    Change.LIVE: set(),
    Change.RESTART_SERVER: {"servers"},
    Change.RESTART_JOB: {"workers"},
}
"""Whose hash is another one after a change."""
EXTRACT, TRAIN = ExtractRunKind(), DrafterTrainKind()
NOT_BY_THEMSELVES = {
    "server.replicas",  # goes with `workers`
    "server.keepAfterSuccess",  # refused by the rules of an ExtractRun
    "server.keepAfterFailure",
    "server.hierarchicalCacheGiBPerRank",
    "endpoints",
}


def cases() -> Iterator[Any]:
    synth = merged(smallest_synth_run("any")["spec"], SYNTH_SPEC)
    for case in SYNTH_CHANGES:
        yield _case(SYNTH, synth, case.entry, case.change)
    given = merged(synth, GIVEN)
    moved = [GIVEN["endpoints"][0] | {"url": "http://10.0.0.6:8000"}]
    yield _case(SYNTH, given, "endpoints", {"endpoints": moved})
    for kind, spec, changes, beside in (
        (EXTRACT, smallest_extract_run("any")["spec"], EXTRACT_CHANGES, "backend"),
        (TRAIN, smallest_drafter_train("any")["spec"], TRAIN_CHANGES, "init"),
    ):
        for entry, value in changes.items():
            parent, _, name = entry.rpartition(".")
            change = value if entry == beside else {name: value}
            yield _case(kind, spec, entry, {parent: change} if parent else change)


def _case(kind: AnyKind, spec: Manifest, entry: str, change: Manifest) -> Any:
    return pytest.param(kind, spec, entry, change, id=f"{kind.name}-{entry}")


def table(kind: AnyKind) -> tuple[mutability.Field, ...]:
    tables = {
        SYNTH.name: mutability.SYNTH_RUN,
        EXTRACT.name: mutability.EXTRACT_RUN,
        TRAIN.name: mutability.DRAFTER_TRAIN,
    }
    return tables[kind.name]


def hashes(kind: AnyKind, raw: Manifest) -> dict[str, str]:
    """What servers apart from the workers, and workers, are replaced by another one of."""
    spec = kind.spec_type.model_validate(raw)
    found = {"workers": kind.workers_hash(spec)}
    if isinstance(spec, SynthRunSpec) and spec.server is not None:
        template = server_template(IDENTITY, spec.model, spec.storage.models, spec.server, DEFAULTS)
        found["servers"] = template_hash(template)
    return found


CASES = [case for case in cases() if change_of(case.values[2], table(case.values[0])) is not Change.REFUSED]


@pytest.mark.parametrize(("kind", "spec", "entry", "change"), CASES)
def test_an_edit_replaces_what_the_table_says_and_nothing_else(
    kind: AnyKind, spec: Manifest, entry: str, change: Manifest
) -> None:
    edited = merged(spec, change)
    assert kind.spec_type.model_validate(edited) != kind.spec_type.model_validate(spec)
    before, after = hashes(kind, spec), hashes(kind, edited)
    moved = {whose for whose in before if before[whose] != after[whose]}
    assert moved == MOVES[change_of(entry, table(kind))]


@pytest.mark.parametrize("kind", [SYNTH, EXTRACT, TRAIN], ids=lambda kind: kind.name)
def test_every_entry_that_an_active_run_accepts_is_tried(kind: AnyKind) -> None:
    tried = {case.values[2] for case in CASES if case.values[0] is kind}
    accepted = {field.path for field in table(kind) if field.change is not Change.REFUSED}
    assert accepted - tried <= (NOT_BY_THEMSELVES if kind is EXTRACT else set())
