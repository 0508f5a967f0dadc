"""A trained drafter: its `manifest.json`, which names what it was made of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.jobconfig import JobRun
from draftmill_api.store import LayerConvention
from draftmill_api.v1alpha1.draftertrain import Scratch, Training
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_api.v1alpha1.trainstatus import Yardstick


class DrafterFile(ApiModel):
    """One file of the drafter."""

    path: str = Field(description="Relative to the manifest.")
    bytes: int
    sha256: str


class DrafterSource(ApiModel):
    """The store that a drafter was trained on."""

    path: str = Field(description="Its folder.")
    sha256: str = Field(description="Of its manifest.")


class DrafterInit(ApiModel):
    """The drafter that it started from."""

    path: str = Field(description="Its folder.")
    files: list[DrafterFile] = Field(description="Config and weights, relative to the folder.")


class DrafterAcceptance(ApiModel):
    """What held-out rows said of it."""

    yardstick: Yardstick
    length: float = Field(ge=1, description="1 + accepted draft tokens / cycles, with the bonus token.")
    cycles: int = Field(ge=0)
    by_position: list[float] = Field(description="Of each draft token, the share of cycles that took it.")
    accuracy: list[float] = Field(
        description="Of each step, the share of positions at which it alone was right."
    )


class EvaluatedConcurrency(ApiModel):
    """The same prompts, greedily, on a plain server and on one that drafts, so many at a time."""

    concurrency: int = Field(ge=1)
    prompts: int = Field(ge=1)
    tokens: int = Field(ge=0, description="Of the answers.")
    cycles: int = Field(ge=0, description="Draft cycles that the server counted.")
    acceptance_length: float = Field(
        ge=1, description="1 + accepted draft tokens / cycles, with the bonus token, as the server counted."
    )
    by_position: list[float] = Field(
        description="Of each draft token, the share of cycles that took it; empty where it is unknown."
    )
    plain_tokens_per_second: float
    drafting_tokens_per_second: float
    ratio: float = Field(description="Drafting over plain.")
    identical: int = Field(ge=0, description="Answers that are the same to the last token.")


class AnsweredConcurrency(ApiModel):
    """What one server answered to all prompts, so many at a time."""

    concurrency: int = Field(ge=1)
    seconds: float = Field(gt=0, description="From the first request to the last answer.")
    outputs: list[list[int]] = Field(description="Token ids of each answer, in the order of the prompts.")
    cycles: int | None = Field(default=None, ge=0, description="Draft cycles; None of a plain server.")
    accepted: int = Field(default=0, ge=0, description="Draft tokens that were accepted.")
    by_position: list[int] = Field(
        default_factory=list, description="Cycles that took the draft token of each position."
    )


class ServerAnswers(ApiModel):
    """`answers-plain.json`, `answers-drafting.json`: one server's part of an evaluation."""

    kind: Literal["ServerAnswers"] = "ServerAnswers"
    version: Literal[1] = 1
    run: JobRun
    max_tokens: int = Field(description="Most tokens of an answer.")
    prompts: list[str] = Field(description="Keys of the rows whose prompts were asked.")
    answered: list[AnsweredConcurrency]


class DrafterEvaluation(ApiModel):
    """`evaluation.json`: a drafter at work."""

    kind: Literal["DrafterEvaluation"] = "DrafterEvaluation"
    version: Literal[1] = 1
    run: JobRun
    drafter_sha256: str | None = Field(
        alias="drafterSHA256",
        description="Of the weights in the output's folder; None where the server's drafter lies elsewhere.",
    )
    max_tokens: int = Field(description="Most tokens of an answer.")
    measured: list[EvaluatedConcurrency]


class DrafterManifest(ApiModel):
    """`manifest.json`: the artefact of a DrafterTrain, by content."""

    kind: Literal["DrafterTrain"] = "DrafterTrain"
    version: Literal[1] = 1
    run: JobRun
    model: ModelFacts = Field(description="The target.")
    model_name: str
    source: DrafterSource
    init: DrafterInit | None = Field(default=None, description="None for one that started from nothing.")
    scratch: Scratch | None = None
    training: Training = Field(description="Every setting in force, the defaults of its start too.")
    held_out_percent: int
    layer_ids: list[int] = Field(min_length=1, description="Of the states that enter it, ascending.")
    layer_convention: LayerConvention = LayerConvention.ENTERING_LAYER
    draft_vocabulary_size: int = Field(ge=1)
    coverage: float = Field(ge=0, le=1, description="Share of the training answers' tokens that it can say.")
    rows: int = Field(ge=1, description="Trained on.")
    held_out_rows: int = Field(ge=0)
    corrupt_rows: int = Field(ge=0, description="Left out because they were not what was stored.")
    steps: int = Field(ge=1, description="Optimiser steps after which it was taken.")
    tokens: int = Field(ge=1, description="Trained on in all steps of the training.")
    acceptance: DrafterAcceptance | None = Field(default=None, description="None when nothing was held out.")
    evaluation: DrafterEvaluation | None = Field(default=None, description="None when it was not asked for.")
    vllm: str = Field(description="Folder for vLLM, relative to the manifest.")
    sglang: str = Field(description="Folder for SGLang; the same one where one config fits both.")
    files: list[DrafterFile]
