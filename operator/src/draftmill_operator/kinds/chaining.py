"""What a run inherits from the one before it, and what it hands on."""

from __future__ import annotations

from typing import TypeVar

from draftmill_api import names as api_names
from draftmill_api.extractjob import JobRecords
from draftmill_api.trainjob import JobStore
from draftmill_api.v1alpha1.extractrun import ExtractOutput
from draftmill_api.v1alpha1.shared import Model, Storage, Volume
from draftmill_api.v1alpha1.status import RunOutput
from draftmill_api.v1alpha1.upstream import RunInput
from draftmill_operator.render.volumes import data_path
from draftmill_operator.run import RunIdentity, RunKey

JobInput = TypeVar("JobInput", JobRecords, JobStore)


def storage_of(key: RunKey, own: Storage | None, bound: RunInput | None) -> Storage:
    """Its own volumes, or those of the run it takes its input from."""
    storage = own or (bound.storage if bound is not None else None)
    if storage is None:
        raise AssertionError(f"{key} has neither storage nor input, which its schema excludes")
    return storage


def model_of(key: RunKey, own: Model | None, bound: RunInput | None) -> Model:
    """Its own model, or that of the run it takes its input from."""
    model = own or (bound.model if bound is not None else None)
    if model is None:
        raise AssertionError(f"{key} has neither a model nor input, which its schema excludes")
    return model


def input_volume(bound: RunInput | None, data: Volume) -> Volume | None:
    """The input's volume, where it is another one than the run's own data."""
    return bound.volume if bound is not None and bound.volume != data else None


def job_input(
    form: type[JobInput], key: RunKey, path: str | None, bound: RunInput | None, data: Volume
) -> JobInput:
    """Where jobs find the input: a path of the run's own data, or what it was bound to."""
    if path is not None:
        return form(path=data_path(path))
    if bound is None:
        raise AssertionError(f"{key} has no input yet")
    root = api_names.DATA_MOUNT if input_volume(bound, data) is None else api_names.INPUT_MOUNT
    return form(
        path=f"{root}/{bound.path}",
        manifest=f"{root}/{bound.manifest}",
        manifest_sha256=bound.manifest_sha256,
        model_fingerprint=bound.model_fingerprint,
    )


def handed_on(
    run: RunIdentity, output: RunOutput | ExtractOutput, records: int, model: Model, storage: Storage
) -> RunInput:
    """What a later run is bound to: a result, and the model and volumes that it was made with."""
    return RunInput(
        kind=run.key.kind,
        name=run.key.name,
        uid=run.uid,
        volume=output.volume,
        path=output.path,
        manifest=output.manifest,
        manifest_sha256=output.manifest_sha256,
        records=records,
        tokens=output.tokens,
        model_fingerprint=output.model.fingerprint,
        model=model,
        storage=storage,
    )
