"""DrafterTrain: hidden states to a drafter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from draftmill_api import names as api_names
from draftmill_api.jobconfig import JobOutput
from draftmill_api.progress import TerminationMessage
from draftmill_api.trainjob import (
    JobEvaluation,
    JobInit,
    JobStore,
    Served,
    TrainFinishResult,
    TrainJobConfig,
)
from draftmill_api.v1alpha1.draftertrain import (
    DrafterTrainSpec,
    DrafterTrainStatus,
    Init,
    TrainOutput,
    TrainPlan,
)
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Endpoint, Model, Storage
from draftmill_api.v1alpha1.status import OutputModel
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.kinds.base import BESIDE, Finished, RunKind, Serving
from draftmill_operator.kinds.chaining import input_volume, job_input, model_of, storage_of
from draftmill_operator.kinds.extracttally import size_for_people
from draftmill_operator.kinds.traintally import TrainTally
from draftmill_operator.observe.evaluated import given_up
from draftmill_operator.render.config import job_model, job_run
from draftmill_operator.render.evaluation import evaluation_servers
from draftmill_operator.render.hardware import Hardware
from draftmill_operator.render.metadata import content_hash
from draftmill_operator.render.volumes import below_data, data_path
from draftmill_operator.render.workload import Ranks, Sidecar, Workload
from draftmill_operator.run import DRAFTERTRAIN, EVALUATIONS, EXTRACTRUN, Role, Run, RunKey

ThisRun = Run[DrafterTrainSpec, DrafterTrainStatus]

_GRACE_SECONDS: Final = 300
"""Weights and moments of a drafter are gigabytes, which a trainer writes before it ends."""
_RESTARTING: Final = {
    "nodes",
    "gpus_per_node",
    "gpu_products",
    "shared_memory",
    "extra_resources",
    "resource_claims",
    "checkpoint",
    "restart",
}


class DrafterTrainKind(RunKind[DrafterTrainSpec, DrafterTrainStatus]):
    """One worker: the trainer, whose ranks are the pods of one Job. It asks no servers."""

    name = DRAFTERTRAIN
    spec_type = DrafterTrainSpec
    status_type = DrafterTrainStatus
    tally = TrainTally()

    def workers(self, spec: DrafterTrainSpec) -> int:
        """All ranks together are one."""
        del spec
        return 1

    def workers_hash(self, spec: DrafterTrainSpec) -> str:
        """The ranks and their pods, what they read once at their start, and the word that restarts them."""
        pod = spec.training.pod
        return content_hash(
            spec.model_dump(mode="json", include=_RESTARTING)
            | {"pod": pod.to_json() if pod is not None else None}
        )

    def serving(self, spec: DrafterTrainSpec) -> Serving:
        """None."""
        del spec
        return Serving()

    def hardware(self, spec: DrafterTrainSpec) -> Hardware:
        """Of each rank."""
        return Hardware.of(spec)

    def storage(self, run: ThisRun) -> Storage:
        """Its own, or that of the run it takes its input from."""
        return storage_of(run.key, run.spec.storage, run.status.input)

    def workload(self, run: ThisRun) -> Workload:
        """Its job pods."""
        spec = run.spec
        return Workload(
            model=_target(run),
            storage=self.storage(run),
            command="train",
            arguments=(),
            workers=1,
            workers_hash=self.workers_hash(spec),
            pod=spec.training.pod,
            input=input_volume(run.status.input, self.storage(run).data),
            ranks=Ranks(spec.nodes, self.hardware(spec)),
            grace_seconds=_GRACE_SECONDS,
            has_torch=True,
            evaluations=_evaluation_servers(run),
        )

    def config(self, run: ThisRun, endpoints: tuple[Endpoint, ...]) -> TrainJobConfig:
        """The spec with absolute paths, what it inherits, and the plan once there is one.

        Without an evaluation that was given up: the finish is not to look for it.
        """
        del endpoints
        spec = run.spec
        return TrainJobConfig(
            run=job_run(run.identity, spec.restart),
            target=job_model(_target(run)),
            store=job_input(JobStore, run.key, spec.from_.path, run.status.input, self.storage(run).data),
            output=JobOutput(path=data_path(spec.output.path)),
            init=_init(spec.init),
            scratch=spec.scratch,
            training=spec.training.model_copy(update={"pod": None}),
            nodes=spec.nodes,
            gpus_per_node=spec.gpus_per_node,
            checkpoint=spec.checkpoint,
            held_out_percent=spec.held_out_percent,
            export=spec.export,
            evaluation=_evaluation(spec) if given_up(run.status) is None else None,
            plan=run.status.plan,
        )

    def overrides(self, spec: DrafterTrainSpec) -> Iterator[tuple[str, PodOverrides | None]]:
        """Those of the job pods, and of the evaluation's server."""
        yield "training.pod", spec.training.pod
        if spec.evaluation is not None:
            yield "evaluation.server.pod", spec.evaluation.server.pod

    def evaluations(self, spec: DrafterTrainSpec) -> tuple[Role, ...]:
        """Both, where an evaluation is asked for."""
        return EVALUATIONS if spec.evaluation is not None else ()

    def plan(self, run: ThisRun, message: TerminationMessage) -> TrainPlan | None:
        """As the plan said it."""
        del run
        return message.train_plan

    def lacks_room(self, run: ThisRun, message: TerminationMessage, capacity: int) -> str:
        """Files that are larger than their claim, whatever the file system below that has."""
        plan, claim = message.train_plan, self.storage(run).data.persistent_volume_claim
        if plan is None or claim is None or plan.bytes_needed <= capacity:
            return ""
        needed, there = size_for_people(plan.bytes_needed), size_for_people(capacity)
        return (
            f"checkpoints and drafter of {plan.parameters} weights need {needed}, and claim "
            f"{claim.claim_name} has {there}; enlarge the claim, or lower checkpoint.keep"
        )

    def summary(self, status: DrafterTrainStatus) -> str:
        """Rows, tokens and steps."""
        plan = status.plan
        if plan is None:
            return ""
        return (
            f"{plan.rows} rows of {plan.tokens} tokens, {plan.held_out_rows} held out, "
            f"{plan.steps} optimiser steps"
        )

    def finished(self, run: ThisRun, message: TerminationMessage) -> Finished | None:
        """The drafter that was verified, and where it is."""
        result, plan = message.train_finish, run.status.plan
        if result is None or plan is None:
            return None
        figure = _figure(result)
        return Finished(
            progress=result.progress,
            output=TrainOutput(
                volume=self.storage(run).data,
                path=run.spec.output.path,
                manifest=below_data(result.manifest),
                manifest_sha256=result.manifest_sha256,
                model=OutputModel(name=_target(run).name, fingerprint=plan.model.fingerprint),
                vllm=below_data(result.vllm),
                sglang=below_data(result.sglang),
                steps=result.steps,
                acceptance_length=result.acceptance_length,
                teacher_agreement=result.teacher_agreement,
                draft_vocabulary_size=plan.draft_vocabulary_size,
                layer_ids=plan.layer_ids,
            ),
            message=f"the drafter after {result.steps} steps{figure}",
            further={"evaluation": result.evaluation},
        )

    def takes_input(self) -> bool:
        """Always."""
        return True

    def upstream(self, run: ThisRun) -> RunKey | None:
        """The ExtractRun that it names."""
        named = run.spec.from_.extract_run
        return RunKey(EXTRACTRUN, run.key.namespace, named.name) if named is not None else None

    def input(self, run: ThisRun) -> RunInput | None:
        """What it was bound to."""
        return run.status.input

    def published(self, run: ThisRun) -> RunInput | None:
        """Nothing: no kind takes a drafter as its input."""
        del run
        return None


def _target(run: ThisRun) -> Model:
    """Its own target, or the model of the run it takes its input from."""
    return model_of(run.key, run.spec.target, run.status.input)


def _init(init: Init | None) -> JobInit | None:
    if init is None:
        return None
    return JobInit(path=f"{api_names.MODELS_MOUNT}/{init.path}", layer_convention=init.layer_convention)


def _evaluation(spec: DrafterTrainSpec) -> JobEvaluation | None:
    """Each server in its turn stands beside the job that asks it."""
    wanted = spec.evaluation
    if wanted is None:
        return None
    plain, drafting = (
        BESIDE.model_copy(update={"name": served.value, "engine": wanted.server.engine}) for served in Served
    )
    return JobEvaluation(
        plain=plain,
        drafting=drafting,
        max_rows=wanted.max_rows,
        max_tokens=wanted.max_tokens,
        context_length=wanted.server.context_length,
        concurrency=wanted.concurrency,
    )


def _evaluation_servers(run: ThisRun) -> dict[Role, Sidecar]:
    wanted, plan = run.spec.evaluation, run.status.plan
    if wanted is None or plan is None:
        return {}
    return evaluation_servers(_target(run), wanted, plan, run.spec.output.path)


def _figure(result: TrainFinishResult) -> str:
    if result.evaluation is not None:
        measured = result.evaluation
        return f", acceptance length {measured.acceptance_length}, {measured.ratio} times as fast"
    if result.acceptance_length:
        return f", simulated acceptance length {result.acceptance_length}"
    return f", teacher agreement {result.teacher_agreement}" if result.teacher_agreement else ""


__all__ = ["DrafterTrainKind"]
