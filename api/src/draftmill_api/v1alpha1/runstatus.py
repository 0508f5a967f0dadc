"""The part of a status that every kind of run shares."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.status import (
    MOST_FAILURES,
    TYPE_MAP,
    Condition,
    Count,
    Failure,
    Output,
    Phase,
    Servers,
    Time,
)

PlanT = TypeVar("PlanT", bound=ApiModel)
ProgressT = TypeVar("ProgressT", bound=ApiModel)
OutputT = TypeVar("OutputT", bound=Output)


class Attempts(ApiModel):
    """Tries of one worker; what the operator needs to start the next one after it was restarted itself."""

    worker: Count = Field(description="Index of the worker.")
    count: Count = Field(default=0, description="Attempts started.")
    without_progress: Count = Field(default=0, description="Failures in a row without progress.")
    done_at_last_failure: Count = Field(
        default=0, description="Rows accounted for when the last attempt failed."
    )
    last_failed_attempt: Count = Field(
        default=0, description="Highest attempt whose failure has been counted."
    )
    last_failure_time: Time | None = Field(default=None, description="When the last attempt failed.")
    last_failure: str = Field(default="", max_length=1024, description="Why the last attempt failed.")
    restarts: Count = Field(
        default=0, description="Restarts of the worker in the pod of its last attempt that have been counted."
    )
    succeeded: bool = Field(
        default=False, description="The worker ended with every row accounted for; what is left is to check."
    )


class ClockHand(StrEnum):
    """Which of a run's clocks is running."""

    PENDING = "Pending"
    ACTIVE = "Active"


class RunClock(ApiModel):
    """Time that counts for the deadlines. It is written when a clock starts or stops, not as it runs."""

    running: ClockHand | None = Field(
        default=None, description="The clock that runs now; none while suspended, paused or ended."
    )
    since: Time | None = Field(default=None, description="When it started or stopped last.")
    pending_seconds: Count = Field(default=0, description="Seconds on the pending clock until then.")
    active_seconds: Count = Field(default=0, description="Seconds on the active clock until then.")
    placed: bool = Field(
        default=False, description="A first server (or worker) has been started: no longer pending."
    )


class Pause(ApiModel):
    """Why and since when all workers of a run have paused."""

    since: Time = Field(description="When all its workers had paused.")
    reason: str = Field(
        default="ErrorPolicyTripped",
        max_length=64,
        description="ErrorPolicyTripped, or StorageFull: answers wait for room on the data volume.",
    )
    message: str = Field(default="", max_length=1024, description="What a worker said about it.")
    recent_errors: Count = Field(
        default=0, description="Failed rows in the window of the worker with the most of them."
    )
    resume_token: str = Field(default="", max_length=64, description="spec.resumeToken at that time.")
    freed: bool = Field(default=False, description="Workers and servers were removed meanwhile.")


class ExcludedNode(ApiModel):
    """A node that rejected pods of the run, which are kept away from it."""

    role: str = Field(max_length=16, description="Role of those pods: plan, server, worker, finish, ...")
    name: str = Field(max_length=253, description="Name of the node.")
    reason: str = Field(max_length=128, description="Why it rejected them, as one CamelCase word.")
    since: Time = Field(description="When it was excluded.")


class StepTries(ApiModel):
    """A step that runs once, and whose pods nodes refused until there was no other node to try."""

    role: str = Field(max_length=16, description="The step: plan, finish, ...")
    tried_again: Count = Field(description="How often nodes were tried again that had refused its pods.")
    last_job: str = Field(max_length=64, description="uid of the last Job that made room for that.")


class RunStatus(ApiModel, Generic[PlanT, ProgressT, OutputT]):
    """What the operator observed of a run of any kind; written by it alone."""

    observed_generation: Count = Field(
        default=0, description="Generation of the spec that was last acted on."
    )
    phase: Phase | None = Field(default=None, description="Where the run is, for people.")
    reason: str = Field(default="", max_length=128, description="Reason of the phase as one CamelCase word.")
    message: str = Field(default="", max_length=4096, description="The reason in a sentence.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        description="Observations in Kubernetes' usual form.",
        json_schema_extra=TYPE_MAP,
    )
    plan: PlanT | None = Field(default=None, description="What the plan found.")
    progress: ProgressT | None = Field(default=None, description="Progress of the run.")
    servers: Servers | None = Field(default=None, description="Server pods.")
    output: OutputT | None = Field(default=None, description="What the finished run published.")
    failures: list[Failure] = Field(
        default_factory=list,
        max_length=MOST_FAILURES,
        description="The most frequent reasons for which rows failed.",
    )
    attempts: list[Attempts] = Field(
        default_factory=list,
        max_length=64,
        description="Tries of each worker.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["worker"]},
    )
    workers_hash: str = Field(
        default="",
        max_length=64,
        description="Hash of what the attempts were started with; another one starts them all anew.",
    )
    restart_served: str = Field(
        default="", max_length=64, description="The value of spec.restart that was acted on last."
    )
    clock: RunClock | None = Field(default=None, description="Time that counts for the deadlines.")
    pause: Pause | None = Field(default=None, description="Set while the run is paused.")
    excluded_nodes: list[ExcludedNode] = Field(
        default_factory=list,
        max_length=16,
        description="Nodes that rejected pods of the run, which are kept away from them.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["role", "name"],
        },
    )
    steps: list[StepTries] = Field(
        default_factory=list,
        max_length=8,
        description="Steps that nodes refused; one that they refuse again after they were tried again more "
        "than backoffLimit times ends the run.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["role"]},
    )
    config_hash: str = Field(
        default="", max_length=64, description="Hash of the job config that the worker has in force."
    )
    start_time: Time | None = Field(default=None, description="When the run was first acted on.")
    completion_time: Time | None = Field(default=None, description="When the run became Complete or Failed.")


AnyStatus = RunStatus[Any, Any, Any]
"""The status of a run of some kind."""
