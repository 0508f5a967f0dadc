"""What may be changed in a spec while its run is active: one table, and the CEL rules made from it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from draftmill_api.base import Rule


class Change(StrEnum):
    """What a change of a spec field does to an active run."""

    LIVE = "live"
    """The running jobs and servers take it over within seconds."""
    RESTART_SERVER = "restarts the servers"
    """The servers are stopped and started with it; the workers wait for them."""
    RESTART_JOB = "restarts the workers"
    """The workers are stopped and started with it, and go on from what is on disk."""
    REFUSED = "refused while active"
    """The API server answers with a sentence."""


class Field(NamedTuple):
    """A part of the spec, by its dotted JSON path, everything below it included."""

    path: str
    change: Change
    remedy: str = ""


_AGAIN: Final = "delete the run and create it again: it goes on from the answers on disk"
_ANEW: Final = (
    "create another run with an output.path of its own, or with output.onChange NewFolder, so that different "
    "answers do not mix"
)

LIFE: Final[tuple[Field, ...]] = (
    Field("suspend", Change.LIVE),
    Field("activeDeadline", Change.LIVE),
    Field("pendingDeadline", Change.LIVE),
    Field("backoffLimit", Change.LIVE),
    Field("ttlAfterFinished", Change.LIVE),
    Field("restart", Change.RESTART_JOB),
)
"""Every field of `RunSpec`."""

SYNTH_RUN: Final[tuple[Field, ...]] = (
    Field("model", Change.REFUSED, _ANEW),
    Field("storage", Change.REFUSED, _AGAIN),
    Field("server.replicas", Change.LIVE),
    Field("server.concurrencyPerReplica", Change.LIVE),
    Field("server.keepAfterSuccess", Change.LIVE),
    Field("server.keepAfterFailure", Change.LIVE),
    Field("server.engine", Change.REFUSED, _ANEW),
    Field("server.image", Change.RESTART_SERVER),
    Field("server.gpus", Change.RESTART_SERVER),
    Field("server.gpuProducts", Change.RESTART_SERVER),
    Field("server.tensorParallelSize", Change.RESTART_SERVER),
    Field("server.contextLength", Change.REFUSED, _AGAIN),
    Field("server.memFractionStatic", Change.RESTART_SERVER),
    Field("server.kvCacheDtype", Change.REFUSED, _ANEW),
    Field("server.hierarchicalCacheGiBPerRank", Change.RESTART_SERVER),
    Field("server.startupTimeout", Change.RESTART_SERVER),
    Field("server.sharedMemory", Change.RESTART_SERVER),
    Field("server.extraArgs", Change.RESTART_SERVER),
    Field("server.extraResources", Change.RESTART_SERVER),
    Field("server.resourceClaims", Change.RESTART_SERVER),
    Field("server.pod", Change.RESTART_SERVER),
    Field("endpoints", Change.LIVE),
    Field("output", Change.REFUSED, "create another run with that output.path"),
    Field("datasets", Change.REFUSED, _AGAIN),
    Field("sampling", Change.REFUSED, _ANEW),
    Field("generation.api", Change.REFUSED, _ANEW),
    Field("generation.chatTemplateKwargs", Change.REFUSED, _ANEW),
    Field("generation.concurrency", Change.LIVE),
    Field("generation.shortPromptTokens", Change.LIVE),
    Field("generation.concurrencyShort", Change.LIVE),
    Field("generation.requestsPerMinute", Change.LIVE),
    Field("generation.tokensPerMinute", Change.LIVE),
    Field("generation.connectTimeout", Change.LIVE),
    Field("generation.stallTimeout", Change.LIVE),
    Field("generation.outageTimeout", Change.LIVE),
    Field("generation.retries", Change.LIVE),
    Field("generation.errorPolicy", Change.LIVE),
    Field("generation.onPause", Change.LIVE),
    Field("generation.workers", Change.RESTART_JOB),
    Field("generation.pod", Change.RESTART_JOB),
    Field("resumeToken", Change.LIVE),
    *LIFE,
)
"""Every field of `SynthRunSpec`."""

_STORE_AGAIN: Final = "delete the run and create it again: it goes on from the states on disk"
_STORE_ANEW: Final = (
    "create another run with an output.path of its own, for a store holds states that were made in one way"
)

EXTRACT_RUN: Final[tuple[Field, ...]] = (
    Field("from", Change.REFUSED, _STORE_ANEW),
    Field("model", Change.REFUSED, _STORE_ANEW),
    Field("storage", Change.REFUSED, _STORE_AGAIN),
    Field("backend", Change.REFUSED, _STORE_ANEW),
    Field("server.replicas", Change.RESTART_JOB),
    Field("server.keepAfterSuccess", Change.LIVE),
    Field("server.keepAfterFailure", Change.LIVE),
    Field("server.engine", Change.REFUSED, _STORE_ANEW),
    Field("server.image", Change.RESTART_JOB),
    Field("server.gpus", Change.RESTART_JOB),
    Field("server.gpuProducts", Change.RESTART_JOB),
    Field("server.tensorParallelSize", Change.RESTART_JOB),
    Field("server.contextLength", Change.REFUSED, _STORE_AGAIN),
    Field("server.memFractionStatic", Change.RESTART_JOB),
    Field("server.kvCacheDtype", Change.REFUSED, _STORE_ANEW),
    Field("server.hierarchicalCacheGiBPerRank", Change.RESTART_JOB),
    Field("server.startupTimeout", Change.RESTART_JOB),
    Field("server.sharedMemory", Change.RESTART_JOB),
    Field("server.extraArgs", Change.RESTART_JOB),
    Field("server.extraResources", Change.RESTART_JOB),
    Field("server.resourceClaims", Change.RESTART_JOB),
    Field("server.pod", Change.RESTART_JOB),
    Field("endpoints", Change.LIVE),
    Field("staging", Change.REFUSED, _STORE_AGAIN),
    Field("layers", Change.REFUSED, _STORE_ANEW),
    Field("dtype", Change.REFUSED, _STORE_ANEW),
    Field("maxRowTokens", Change.REFUSED, _STORE_ANEW),
    Field("onLongRow", Change.REFUSED, _STORE_ANEW),
    Field("rowFilter", Change.REFUSED, _STORE_ANEW),
    Field("maxRows", Change.REFUSED, _STORE_ANEW),
    Field("shardSize", Change.REFUSED, _STORE_AGAIN),
    Field("workers", Change.RESTART_JOB),
    Field("inFlightTokens", Change.LIVE),
    Field("retries", Change.LIVE),
    Field("outageTimeout", Change.LIVE),
    Field("verify", Change.REFUSED, _STORE_AGAIN),
    Field("extraction", Change.RESTART_JOB),
    Field("output", Change.REFUSED, "create another run with that output.path"),
    *LIFE,
)
"""Every field of `ExtractRunSpec`. Its servers are part of its workers' pods, and are restarted with them."""

_TRAIN_AGAIN: Final = "delete the run and create it again: it goes on from its newest checkpoint"
_TRAIN_ANEW: Final = (
    "create another run with an output.path of its own, for checkpoints belong to one training"
)

DRAFTER_TRAIN: Final[tuple[Field, ...]] = (
    Field("from", Change.REFUSED, _TRAIN_ANEW),
    Field("target", Change.REFUSED, _TRAIN_ANEW),
    Field("storage", Change.REFUSED, _TRAIN_AGAIN),
    Field("init", Change.REFUSED, _TRAIN_ANEW),
    Field("scratch", Change.REFUSED, _TRAIN_ANEW),
    Field("training.epochs", Change.REFUSED, _TRAIN_ANEW),
    Field("training.learningRate", Change.REFUSED, _TRAIN_ANEW),
    Field("training.schedule", Change.REFUSED, _TRAIN_ANEW),
    Field("training.warmupSteps", Change.REFUSED, _TRAIN_ANEW),
    Field("training.tttLength", Change.REFUSED, _TRAIN_ANEW),
    Field("training.tttDecay", Change.REFUSED, _TRAIN_ANEW),
    Field("training.tokensPerBatch", Change.REFUSED, _TRAIN_ANEW),
    Field("training.maxRowTokens", Change.REFUSED, _TRAIN_ANEW),
    Field("training.gradientClip", Change.REFUSED, _TRAIN_ANEW),
    Field("training.precision", Change.REFUSED, _TRAIN_ANEW),
    Field("training.seed", Change.REFUSED, _TRAIN_ANEW),
    Field("training.l2ToInit", Change.REFUSED, _TRAIN_ANEW),
    Field("training.noiseStd", Change.REFUSED, _TRAIN_ANEW),
    Field("training.pod", Change.RESTART_JOB),
    Field("nodes", Change.RESTART_JOB),
    Field("gpusPerNode", Change.RESTART_JOB),
    Field("gpuProducts", Change.RESTART_JOB),
    Field("sharedMemory", Change.RESTART_JOB),
    Field("extraResources", Change.RESTART_JOB),
    Field("resourceClaims", Change.RESTART_JOB),
    Field("checkpoint", Change.RESTART_JOB),
    Field("heldOutPercent", Change.REFUSED, _TRAIN_ANEW),
    Field("export", Change.REFUSED, _TRAIN_AGAIN),
    Field("evaluation", Change.REFUSED, _TRAIN_AGAIN),
    Field("output", Change.REFUSED, "create another run with that output.path"),
    *LIFE,
)
"""Every field of `DrafterTrainSpec`. What weights depend on stays; where they are computed may change."""

_INACTIVE: Final = "!has(self.status) || !has(self.status.startTime) || has(self.status.completionTime)"


_NO_SWITCH: Final = Rule(
    f"{_INACTIVE} || has(self.spec.server) == has(oldSelf.spec.server)",
    "a run cannot be moved from server to endpoints or back while it is active; delete the run and create it "
    "again: it goes on from what is on disk",
)


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
    refusals = (_refusal(field) for field in table if field.change is Change.REFUSED)
    has_servers = any(field.path == "endpoints" for field in table)
    return (*refusals, _NO_SWITCH) if has_servers else tuple(refusals)


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
