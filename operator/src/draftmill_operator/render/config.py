"""The job config as a file, and the ConfigMap that carries it."""

from __future__ import annotations

import json

from draftmill_api.base import ApiModel
from draftmill_api.jobconfig import JobModel, JobRun
from draftmill_api.v1alpha1.shared import Model
from draftmill_operator.render.metadata import Manifest, metadata, sealed
from draftmill_operator.render.names import child_name
from draftmill_operator.render.volumes import model_path
from draftmill_operator.run import Role, RunIdentity

CONFIG_KEY = "job.yaml"


def config_name(run: RunIdentity) -> str:
    """Name of the ConfigMap that is mounted into the job pods."""
    return child_name(run.key, Role.CONFIG)


def config_text(config: ApiModel) -> str:
    """The config file of every job of a run; equal input gives equal bytes."""
    return json.dumps(config.to_json(), indent=1, sort_keys=True) + "\n"


def job_model(model: Model) -> JobModel:
    """The model as jobs see it."""
    return JobModel(
        name=model.name,
        path=model_path(model),
        hugging_face=model.hugging_face,
        trust_remote_code=model.trust_remote_code,
    )


def job_run(run: RunIdentity, restart: str | None) -> JobRun:
    """The run that a job belongs to."""
    return JobRun.model_validate(
        {
            "kind": run.key.kind,
            "name": run.key.name,
            "namespace": run.key.namespace,
            "uid": run.uid,
            "restart": restart or "",
        }
    )


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
