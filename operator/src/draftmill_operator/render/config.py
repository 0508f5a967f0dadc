"""The job config: the run's spec with absolute paths, and the addresses of its servers."""

from __future__ import annotations

import json

from draftmill_api.jobconfig import (
    JobDataset,
    JobFile,
    JobModel,
    JobOutput,
    JobRun,
    JobSource,
    SynthJobConfig,
)
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.synthrun import Source, SynthRunSpec
from draftmill_operator.render.metadata import Manifest, metadata, sealed
from draftmill_operator.render.names import child_name
from draftmill_operator.render.volumes import data_path, model_path
from draftmill_operator.run import Role, RunIdentity

CONFIG_KEY = "job.yaml"


def config_name(run: RunIdentity) -> str:
    """Name of the ConfigMap that is mounted into the job pods."""
    return child_name(run.key, Role.CONFIG)


def config_text(run: RunIdentity, spec: SynthRunSpec, endpoints: tuple[Endpoint, ...]) -> str:
    """The config file of every job of the run; equal input gives equal bytes."""
    config = SynthJobConfig(
        run=JobRun(
            kind="SynthRun",
            name=run.key.name,
            namespace=run.key.namespace,
            uid=run.uid,
            restart=spec.restart or "",
        ),
        model=JobModel(
            name=spec.model.name,
            path=model_path(spec.model),
            hugging_face=spec.model.hugging_face,
            trust_remote_code=spec.model.trust_remote_code,
        ),
        output=JobOutput(path=data_path(spec.output.path)),
        datasets=[
            JobDataset(
                name=dataset.name,
                source=_source(dataset.source),
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
        endpoints=list(endpoints),
        context_length=spec.server.context_length if spec.server is not None else None,
    )
    return json.dumps(config.to_json(), indent=1, sort_keys=True) + "\n"


def render_config(run: RunIdentity, text: str) -> Manifest:
    """The ConfigMap with the job config."""
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(run, Role.CONFIG, config_name(run)),
            "data": {CONFIG_KEY: text},
        }
    )


def _source(source: Source) -> JobSource:
    if source.file is None:
        return JobSource(hugging_face=source.hugging_face)
    return JobSource(file=JobFile(path=data_path(source.file.path)))
