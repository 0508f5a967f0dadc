"""The one config file of every job: the spec's own field names, plus endpoints and absolute paths."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.generation import Generation, TemplateArguments
from draftmill_api.v1alpha1.shared import HuggingFaceModel
from draftmill_api.v1alpha1.source import Fields, Filters, FolderPattern, HuggingFaceDataset
from draftmill_api.v1alpha1.synthrun import (
    Compression,
    OnChange,
    Sampling,
    SamplingOverrides,
    SynthEndpoint,
    Turns,
)

AbsolutePath = Annotated[str, Field(pattern=r"^/", max_length=2048)]


class JobModel(ApiModel):
    """The target model as a job sees it."""

    name: str = Field(description="Name under which the server serves the model.")
    path: AbsolutePath = Field(
        description="Folder of the model; with huggingFace, where the plan downloads it to."
    )
    hugging_face: HuggingFaceModel | None = Field(
        default=None, description="Where the plan downloads it from."
    )
    trust_remote_code: bool = Field(
        default=False, description="Allow the Python code of the model's folder to run."
    )


class JobFile(ApiModel):
    """A file of prompts."""

    path: AbsolutePath = Field(description="A .jsonl, .json, .parquet or .arrow file.")


class JobFolder(ApiModel):
    """A folder with files of prompts."""

    path: AbsolutePath
    pattern: FolderPattern = "**/*"


class JobSource(ApiModel):
    """Where prompts come from: exactly one of huggingFace, file and folder."""

    EXACTLY_ONE_OF = ("hugging_face", "file", "folder")

    hugging_face: HuggingFaceDataset | None = Field(default=None, description="A dataset of the hub.")
    file: JobFile | None = Field(default=None, description="A file.")
    folder: JobFolder | None = Field(default=None, description="A folder of files.")


class JobDataset(ApiModel):
    """A dataset as a job sees it."""

    name: str = Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    source: JobSource
    fields: Fields = Field(default_factory=Fields)
    filters: Filters = Field(default_factory=Filters)
    shuffle_seed: int | None = Field(default=None, ge=0, le=2_147_483_647)
    turns: Turns = Turns.LAST_TURN
    max_samples: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    sampling: SamplingOverrides = Field(default_factory=SamplingOverrides)
    chat_template_kwargs: TemplateArguments = Field(default_factory=dict)


def newer_field(default: Any) -> Any:
    """A field that job images of before do not know, nor accept: it is left out while it has its default.

    A run that has begun keeps its images, and gets the config of the newest operator.
    """
    return Field(default=default, exclude_if=lambda value: value == default)


class JobOutput(ApiModel):
    """Where a job's result goes."""

    path: AbsolutePath


class SynthJobOutput(JobOutput):
    """Where the answers go, and how."""

    on_change: OnChange = newer_field(OnChange.REFUSE)
    compression: Compression = Compression.NONE


class JobRun(ApiModel):
    """The run that a job belongs to; on a laptop a name is enough."""

    kind: Literal["SynthRun", "ExtractRun", "DrafterTrain"] = "SynthRun"
    name: str = "local"
    namespace: str = ""
    uid: str = ""
    restart: str = Field(
        default="",
        max_length=64,
        description="Another word than before: rows that failed in a way that may pass are asked again.",
    )


class SynthJobConfig(ApiModel):
    """Config of `draftmill plan`, `generate` and `finish` for a SynthRun."""

    run: JobRun = Field(default_factory=JobRun)
    model: JobModel
    output: SynthJobOutput
    datasets: list[JobDataset] = Field(min_length=1, max_length=64)
    sampling: Sampling = Field(default_factory=Sampling)
    generation: Generation = Field(default_factory=Generation)
    resume_token: str = Field(
        default="", max_length=64, description="Another word than before: a paused worker goes on."
    )
    endpoints: list[SynthEndpoint] = Field(default_factory=list, max_length=64)
    context_length: int | None = Field(
        default=None, ge=1, description="Sequence limit that the servers were started with, in tokens."
    )

    @field_validator("datasets")
    @classmethod
    def _datasets_have_names_of_their_own(cls, datasets: list[JobDataset]) -> list[JobDataset]:
        refuse_same_name(
            [dataset.name for dataset in datasets], "datasets", "which is the name of its folder"
        )
        return datasets

    @field_validator("endpoints")
    @classmethod
    def _endpoints_have_names_of_their_own(cls, endpoints: list[SynthEndpoint]) -> list[SynthEndpoint]:
        refuse_same_name([endpoint.name for endpoint in endpoints], "endpoints", "which the records carry")
        return endpoints


def refuse_same_name(names: list[str], what: str, why: str) -> None:
    """Raises ValueError, which names the first name that is there again."""
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"two {what} have the name {name!r}; each needs its own, {why}")


def config_hash(text: str) -> str:
    """Identity of a config file's text: what `/progress` reports as the hash in force."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
