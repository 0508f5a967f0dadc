"""SynthRun: prompts to answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from draftmill_api.jobconfig import JobDataset, JobFile, JobFolder, JobSource, SynthJobConfig, SynthJobOutput
from draftmill_api.progress import Progress, TerminationMessage, WorkerResult, unpacked
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Endpoint, Storage
from draftmill_api.v1alpha1.source import Source
from draftmill_api.v1alpha1.status import DatasetPlan, OutputModel, Plan, RunOutput, RunProgress
from draftmill_api.v1alpha1.synthrun import Output, SynthEndpoint, SynthRunSpec, SynthRunStatus
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.kinds.base import Finished, PausePolicy, RunKind, Serving, Tally
from draftmill_operator.kinds.chaining import handed_on
from draftmill_operator.render.config import job_model, job_run
from draftmill_operator.render.metadata import content_hash
from draftmill_operator.render.volumes import below_data, data_path
from draftmill_operator.render.workload import DRAIN_SECONDS, Workload
from draftmill_operator.run import SYNTHRUN, Run
from draftmill_operator.status.together import datasets_together, progress_together

CAP_REACHED: Final = "CapReached"
SynthRunRun = Run[SynthRunSpec, SynthRunStatus]


class SynthTally(Tally[RunProgress]):
    """Rows with a record, and the rates at which they come."""

    def of_answer(self, answer: Progress) -> RunProgress:
        """What the generator says."""
        return answer.progress

    def of_result(self, result: WorkerResult) -> RunProgress:
        """What the generator said last."""
        return result.progress

    def together(self, parts: Sequence[RunProgress]) -> RunProgress:
        """Counts and rates added."""
        return progress_together(parts)

    def at_rest(self, progress: RunProgress) -> RunProgress:
        """Counts without rates."""
        still = {"in_flight": 0, "requests_per_second": "", "tokens_per_second": None}
        return progress.model_copy(update=still | {"eta": "", "eta_low": "", "eta_high": ""})

    def done(self, progress: RunProgress) -> int:
        """Rows with a record."""
        return progress.done

    def accounted(self, progress: RunProgress) -> int:
        """Rows that need no further answer."""
        return progress.done + progress.errors

    def further(self, answers: Sequence[Progress]) -> dict[str, Any]:
        """The datasets' counts."""
        return {"datasets": datasets_together([answer.datasets for answer in answers])}


class SynthRunKind(RunKind[SynthRunSpec, SynthRunStatus]):
    """Generators that ask servers which stand apart from them."""

    name = SYNTHRUN
    spec_type = SynthRunSpec
    status_type = SynthRunStatus
    tally = SynthTally()

    def workers(self, spec: SynthRunSpec) -> int:
        """Generators that share the rows."""
        return spec.generation.workers

    def workers_hash(self, spec: SynthRunSpec) -> str:
        """Their number, their pods, and the word that restarts them."""
        pod = spec.generation.pod
        return content_hash(
            {
                "workers": spec.generation.workers,
                "restart": spec.restart,
                "pod": pod.to_json() if pod is not None else None,
            }
        )

    def serving(self, spec: SynthRunSpec) -> Serving:
        """Servers of its own, or those that it names."""
        return Serving(apart=spec.server, given=tuple(spec.endpoints or ()))

    def storage(self, run: SynthRunRun) -> Storage:
        """Its own."""
        return run.spec.storage

    def workload(self, run: SynthRunRun) -> Workload:
        """Its job pods."""
        spec = run.spec
        return Workload(
            model=spec.model,
            storage=spec.storage,
            command="generate",
            arguments=("--grace-period", str(DRAIN_SECONDS), "--when-paused", "wait"),
            workers=spec.generation.workers,
            workers_hash=self.workers_hash(spec),
            pod=spec.generation.pod,
        )

    def config(self, run: SynthRunRun, endpoints: tuple[Endpoint, ...]) -> SynthJobConfig:
        """The spec with absolute paths, and the addresses of its servers."""
        spec = run.spec
        return SynthJobConfig(
            run=job_run(run.identity, spec.restart),
            model=job_model(spec.model),
            output=_output(spec.output, run.status.plan),
            datasets=[
                JobDataset(
                    name=dataset.name,
                    source=_source(dataset.source),
                    fields=dataset.fields,
                    filters=dataset.filters,
                    shuffle_seed=dataset.shuffle_seed,
                    turns=dataset.turns,
                    max_samples=dataset.max_samples,
                    max_tokens=dataset.max_tokens,
                    sampling=dataset.sampling,
                    chat_template_kwargs=dataset.chat_template_kwargs,
                )
                for dataset in spec.datasets
            ],
            sampling=spec.sampling,
            generation=spec.generation.model_copy(update={"pod": None}),
            resume_token=spec.resume_token or "",
            endpoints=[_endpoint(endpoint, spec) for endpoint in endpoints],
            context_length=spec.server.context_length if spec.server is not None else None,
        )

    def overrides(self, spec: SynthRunSpec) -> Iterator[tuple[str, PodOverrides | None]]:
        """Those of servers and job pods."""
        if spec.server is not None:
            yield "server.pod", spec.server.pod
        yield "generation.pod", spec.generation.pod

    def pause_policy(self, spec: SynthRunSpec) -> PausePolicy:
        """The run's error policy, and its word for going on."""
        policy, on_pause = spec.generation.error_policy, spec.generation.on_pause
        return PausePolicy(
            policy.pause_percent, policy.window, on_pause.free_servers_after, spec.resume_token or ""
        )

    def plan(self, run: SynthRunRun, message: TerminationMessage) -> Plan | None:
        """The plan's numbers with the names of the datasets."""
        result = message.plan
        if result is None:
            return None
        datasets = [
            DatasetPlan(
                name=dataset.name, total=total, duplicates=duplicates, unusable=unusable, filtered=filtered
            )
            for dataset, total, duplicates, unusable, filtered in zip(
                run.spec.datasets,
                result.dataset_totals,
                result.dataset_duplicates,
                result.dataset_unusable,
                result.dataset_filtered,
                strict=True,
            )
        ]
        return Plan(
            model=result.model,
            datasets=datasets,
            output_path=result.output or run.spec.output.path,
            rows=sum(result.dataset_totals),
            prompt_tokens=result.prompt_tokens,
            longest_prompt_tokens=result.longest_prompt_tokens,
            bytes_needed=result.bytes_needed,
            bytes_free=result.bytes_free,
        )

    def summary(self, status: SynthRunStatus) -> str:
        """Rows and datasets."""
        plan = status.plan
        return f"{plan.rows} rows in {len(plan.datasets)} datasets" if plan is not None else ""

    def finished(self, run: SynthRunRun, message: TerminationMessage) -> Finished | None:
        """The records that were counted, and where they are."""
        result, plan = message.finish, run.status.plan
        if result is None or plan is None:
            return None
        names, numbers = [dataset.name for dataset in run.spec.datasets], result.dataset_counts
        counted = [unpacked(*named) for named in zip(names, numbers, strict=True)] if numbers else []
        return Finished(
            progress=result.progress,
            output=RunOutput(
                volume=run.spec.storage.data,
                path=run.spec.output.folder(plan),
                manifest=below_data(result.manifest),
                manifest_sha256=result.manifest_sha256,
                records=result.progress.done,
                tokens=result.progress.completion_tokens,
                model=OutputModel(name=run.spec.model.name, fingerprint=plan.model.fingerprint),
            ),
            message=f"{result.progress.done} records",
            reason=CAP_REACHED if result.cap_reached else "",
            failures=tuple(result.failures),
            further={"datasets": counted} if counted else {},
        )

    def published(self, run: SynthRunRun) -> RunInput | None:
        """Its records, and the model and volumes they were made with."""
        output = run.status.output
        if output is None:
            return None
        return handed_on(run.identity, output, output.records, run.spec.model, run.spec.storage)


def _endpoint(endpoint: Endpoint, spec: SynthRunSpec) -> SynthEndpoint:
    """A server with the most requests that it may have: what is said of each pod, or of a given one."""
    if isinstance(endpoint, SynthEndpoint):
        return endpoint
    most = spec.server.concurrency_per_replica if spec.server is not None else None
    return SynthEndpoint(name=endpoint.name, url=endpoint.url, engine=endpoint.engine, concurrency=most)


def _output(wanted: Output, plan: Plan | None) -> SynthJobOutput:
    """The plan chooses the folder, and no step after it another one."""
    if plan is None:
        return SynthJobOutput(
            path=data_path(wanted.path), on_change=wanted.on_change, compression=wanted.compression
        )
    return SynthJobOutput(path=data_path(wanted.folder(plan)), compression=wanted.compression)


def _source(source: Source) -> JobSource:
    if source.file is not None:
        return JobSource(file=JobFile(path=data_path(source.file.path)))
    if source.folder is not None:
        folder = source.folder
        return JobSource(folder=JobFolder(path=data_path(folder.path), pattern=folder.pattern))
    return JobSource(hugging_face=source.hugging_face)


__all__ = ["CAP_REACHED", "SynthRunKind"]
