"""What may be changed in a spec while its run is active: one table, and the CEL rules made from it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from draftmill_api.base import Rule


class Change(StrEnum):
    """What a change of a spec field does to an active run.

    A way of acting on a change, such as restarting the servers, is a further member here.
    """

    LIVE = "live"
    """The running jobs and servers take it over within seconds."""
    REFUSED = "refused while active"
    """The API server answers with a sentence."""


class Field(NamedTuple):
    """A part of the spec, by its dotted JSON path, everything below it included."""

    path: str
    change: Change
    remedy: str = ""


_AGAIN: Final = "delete the run and create it again: it goes on from the answers on disk"
_ANEW: Final = "create another run with an output.path of its own, so that different answers do not mix"

SYNTH_RUN: Final[tuple[Field, ...]] = (
    Field("model", Change.REFUSED, _ANEW),
    Field("storage", Change.REFUSED, _AGAIN),
    Field("server.replicas", Change.LIVE),
    Field("server.engine", Change.REFUSED, _ANEW),
    Field("server.image", Change.REFUSED, _AGAIN),
    Field("server.gpus", Change.REFUSED, _AGAIN),
    Field("server.gpuProducts", Change.REFUSED, _AGAIN),
    Field("server.tensorParallelSize", Change.REFUSED, _AGAIN),
    Field("server.contextLength", Change.REFUSED, _AGAIN),
    Field("server.memFractionStatic", Change.REFUSED, _AGAIN),
    Field("server.kvCacheDtype", Change.REFUSED, _AGAIN),
    Field("server.hierarchicalCacheGiBPerRank", Change.REFUSED, _AGAIN),
    Field("server.startupTimeout", Change.REFUSED, _AGAIN),
    Field("server.sharedMemory", Change.REFUSED, _AGAIN),
    Field("server.extraArgs", Change.REFUSED, _AGAIN),
    Field("server.extraResources", Change.REFUSED, _AGAIN),
    Field("server.resourceClaims", Change.REFUSED, _AGAIN),
    Field("server.pod", Change.REFUSED, _AGAIN),
    Field("endpoints", Change.REFUSED, _AGAIN),
    Field("output", Change.REFUSED, "create another run with that output.path"),
    Field("datasets", Change.REFUSED, _AGAIN),
    Field("sampling", Change.REFUSED, _ANEW),
    Field("generation.api", Change.REFUSED, _ANEW),
    Field("generation.chatTemplateKwargs", Change.REFUSED, _ANEW),
    Field("generation.concurrency", Change.LIVE),
    Field("generation.connectTimeout", Change.LIVE),
    Field("generation.stallTimeout", Change.LIVE),
    Field("generation.retries", Change.LIVE),
    Field("generation.pod", Change.REFUSED, _AGAIN),
    Field("backoffLimit", Change.LIVE),
)
"""Every field of `SynthRunSpec`."""

_INACTIVE: Final = "!has(self.status) || !has(self.status.startTime) || has(self.status.completionTime)"


def change_of(path: str, table: tuple[Field, ...]) -> Change:
    """What a change at a dotted path does.

    Raises:
        KeyError: the table says nothing about the path.
    """
    for field in table:
        if path == field.path or path.startswith(f"{field.path}."):
            return field.change
    raise KeyError(path)


def rules(table: tuple[Field, ...]) -> tuple[Rule, ...]:
    """The rules for the schema's root, where CEL sees both spec and status."""
    return tuple(_refusal(field) for field in table if field.change is Change.REFUSED)


def _refusal(field: Field) -> Rule:
    return Rule(
        f"{_INACTIVE} || {_is_same(field.path)}",
        f"spec.{field.path} cannot be changed while the run is active; {field.remedy}",
    )


def _is_same(path: str) -> str:
    """The field is absent on both sides or equal.

    Equality skips keys outside the schema that its right side lacks, hence both directions. What remains
    unseen is one such key exchanged for another, in chatTemplateKwargs alone; a generator keeps the arguments
    it began with, and `run.json` refuses others. Optional selection (`?.`) would be shorter, but the API
    server cannot bound its cost.
    """
    new, old = f"self.spec.{path}", f"oldSelf.spec.{path}"
    same = f"has({new}) == has({old}) && (!has({new}) || ({new} == {old} && {old} == {new}))"
    parent, _, _ = path.rpartition(".")
    return f"!has(self.spec.{parent}) || !has(oldSelf.spec.{parent}) || ({same})" if parent else f"({same})"
