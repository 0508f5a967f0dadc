"""ExtractRun: answers to hidden states."""

from __future__ import annotations

from collections.abc import Iterator

from draftmill_api import names as api_names
from draftmill_api.extractjob import ExtractJobConfig, JobLayers, JobRecords
from draftmill_api.jobconfig import JobOutput
from draftmill_api.progress import TerminationMessage
from draftmill_api.v1alpha1.extractrun import (
    Backend,
    ExtractOutput,
    ExtractPlan,
    ExtractProgress,
    ExtractRunSpec,
    ExtractRunStatus,
    Layers,
)
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Endpoint, Model, Storage
from draftmill_api.v1alpha1.status import OutputModel
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.kinds.base import Finished, RunKind, Serving
from draftmill_operator.kinds.chaining import handed_on, input_volume, job_input, model_of, storage_of
from draftmill_operator.kinds.extracttally import ExtractTally, size_for_people
from draftmill_operator.render.config import job_model, job_run
from draftmill_operator.render.hidden_states import hidden_states_server
from draftmill_operator.render.metadata import content_hash
from draftmill_operator.render.volumes import below_data, data_path
from draftmill_operator.render.workload import DRAIN_SECONDS, Workload
from draftmill_operator.run import EXTRACTRUN, SYNTHRUN, Run, RunKey

ThisRun = Run[ExtractRunSpec, ExtractRunStatus]


class ExtractRunKind(RunKind[ExtractRunSpec, ExtractRunStatus]):
    """Extractors, each with a server in its pod unless it computes itself or asks servers that exist."""

    name = EXTRACTRUN
    spec_type = ExtractRunSpec
    status_type = ExtractRunStatus
    tally = ExtractTally()

    def workers(self, spec: ExtractRunSpec) -> int:
        """Extractors that share the rows."""
        return spec.workers

    def workers_hash(self, spec: ExtractRunSpec) -> str:
        """Their number, their pods with the servers in them, and the word that restarts them."""
        return content_hash(
            {
                "workers": spec.workers,
                "restart": spec.restart,
                "extraction": spec.extraction.to_json(),
                "server": spec.server.to_json() if spec.server is not None else None,
            }
        )

    def serving(self, spec: ExtractRunSpec) -> Serving:
        """A server in each worker's pod, or those that it names, or none."""
        return Serving(beside=spec.server, given=tuple(spec.endpoints or ()))

    def storage(self, run: ThisRun) -> Storage:
        """Its own, or that of the run it takes its input from."""
        return storage_of(run.key, run.spec.storage, run.status.input)

    def workload(self, run: ThisRun) -> Workload:
        """Its job pods; the server's flags follow from the plan."""
        spec, plan, model = run.spec, run.status.plan, _model(run)
        sidecar = None
        if spec.server is not None and plan is not None:
            sidecar = hidden_states_server(model, spec.server, plan, spec.in_flight_tokens)
        return Workload(
            model=model,
            storage=self.storage(run),
            command="extract",
            arguments=("--grace-period", str(DRAIN_SECONDS)),
            workers=spec.workers,
            workers_hash=self.workers_hash(spec),
            pod=spec.extraction.pod,
            gpus=spec.extraction.gpus,
            input=input_volume(run.status.input, self.storage(run).data),
            sidecar=sidecar,
            has_torch=spec.backend is Backend.TRANSFORMERS,
        )

    def config(self, run: ThisRun, endpoints: tuple[Endpoint, ...]) -> ExtractJobConfig:
        """The spec with absolute paths, what it inherits, the plan once there is one, and its servers."""
        spec = run.spec
        return ExtractJobConfig(
            run=job_run(run.identity, spec.restart),
            model=job_model(_model(run)),
            records=job_input(JobRecords, run.key, spec.from_.path, run.status.input, self.storage(run).data),
            output=JobOutput(path=data_path(spec.output.path)),
            backend=spec.backend,
            layers=_layers(spec.layers),
            dtype=spec.dtype,
            max_row_tokens=spec.max_row_tokens,
            on_long_row=spec.on_long_row,
            row_filter=spec.row_filter,
            max_rows=spec.max_rows,
            shard_size=spec.shard_size,
            in_flight_tokens=spec.in_flight_tokens,
            retries=spec.retries,
            outage_timeout=spec.outage_timeout,
            verify=spec.verify,
            gpus=spec.extraction.gpus,
            endpoints=list(endpoints),
            staging=_staging(spec),
            plan=run.status.plan,
        )

    def overrides(self, spec: ExtractRunSpec) -> Iterator[tuple[str, PodOverrides | None]]:
        """Those of servers and job pods."""
        if spec.server is not None:
            yield "server.pod", spec.server.pod
        yield "extraction.pod", spec.extraction.pod

    def plan(self, run: ThisRun, message: TerminationMessage) -> ExtractPlan | None:
        """As the plan said it."""
        del run
        return message.extract_plan

    def lacks_room(self, run: ThisRun, message: TerminationMessage, capacity: int) -> str:
        """A store that is larger than its claim, whatever the file system below that has."""
        plan, claim = message.extract_plan, self.storage(run).data.persistent_volume_claim
        if plan is None or claim is None or (needed := plan.state_bytes + plan.other_bytes) <= capacity:
            return ""
        states, others = size_for_people(plan.state_bytes), size_for_people(plan.other_bytes)
        return (
            f"the store needs {size_for_people(needed)} ({states} for states, {others} for ids, masks and "
            f"index), and claim {claim.claim_name} has {size_for_people(capacity)}; enlarge the claim, or "
            "lower maxRows or maxRowTokens"
        )

    def summary(self, status: ExtractRunStatus) -> str:
        """Rows, tokens, and what takes how much of the volume."""
        plan = status.plan
        if plan is None:
            return ""
        states, others = size_for_people(plan.state_bytes), size_for_people(plan.other_bytes)
        return f"{plan.rows} rows of {plan.tokens} tokens: states {states}; ids, masks and index {others}"

    def finished(self, run: ThisRun, message: TerminationMessage) -> Finished | None:
        """The rows that were counted in the store, and where it is."""
        result, plan = message.extract_finish, run.status.plan
        if result is None or plan is None:
            return None
        return Finished(
            progress=ExtractProgress(
                rows=result.rows,
                total=plan.rows,
                tokens=result.tokens,
                bytes=result.bytes,
                size=size_for_people(result.bytes),
                quarantined=result.quarantined,
            ),
            output=ExtractOutput(
                volume=self.storage(run).data,
                path=run.spec.output.path,
                manifest=below_data(result.manifest),
                manifest_sha256=result.manifest_sha256,
                model=OutputModel(name=_model(run).name, fingerprint=plan.model.fingerprint),
                rows=result.rows,
                tokens=result.tokens,
                bytes=result.bytes,
                layer_ids=plan.layer_ids,
                dtype=run.spec.dtype,
            ),
            message=f"{result.rows} rows of {result.tokens} tokens",
            failures=tuple(result.failures),
        )

    def takes_input(self) -> bool:
        """Always."""
        return True

    def upstream(self, run: ThisRun) -> RunKey | None:
        """The SynthRun that it names."""
        named = run.spec.from_.synth_run
        return RunKey(SYNTHRUN, run.key.namespace, named.name) if named is not None else None

    def input(self, run: ThisRun) -> RunInput | None:
        """What it was bound to."""
        return run.status.input

    def published(self, run: ThisRun) -> RunInput | None:
        """Its store, and the model and volumes that it was made with, be they its own or inherited."""
        output = run.status.output
        if output is None:
            return None
        return handed_on(run.identity, output, output.rows, _model(run), self.storage(run))


def _model(run: ThisRun) -> Model:
    """Its own model, or that of the run it takes its input from."""
    return model_of(run.key, run.spec.model, run.status.input)


def _layers(layers: Layers) -> JobLayers:
    drafter = layers.from_drafter
    return JobLayers(
        ids=layers.ids,
        default=layers.default,
        from_drafter=f"{api_names.MODELS_MOUNT}/{drafter.path}" if drafter is not None else None,
    )


def _staging(spec: ExtractRunSpec) -> str | None:
    """Where servers leave states: a folder of the pod, or the one that given servers share."""
    if spec.staging is not None:
        return data_path(spec.staging)
    return api_names.STAGING_MOUNT if spec.server is not None else None


__all__ = ["ExtractRunKind"]
