"""Files that say what an output is made of: `run.json`, `summary.json`, `manifest.json`."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.jobconfig import JobRun
from draftmill_api.record import canonical_json
from draftmill_api.v1alpha1.source import Fields, Filters, HuggingFaceDataset
from draftmill_api.v1alpha1.status import DatasetProgress, ModelFacts, RunProgress
from draftmill_api.v1alpha1.synthrun import Turns


class RunFingerprint(ApiModel):
    """`run.json` of a dataset's folder: what its records were asked with. Another fingerprint is refused."""

    model: ModelFacts
    sampling: dict[str, Any]
    chat_template_kwargs: dict[str, Any]
    turns: Turns = Turns.LAST_TURN
    run: JobRun = Field(description="The run that last wrote here; a new one asks passing failures again.")

    def binding(self) -> dict[str, Any]:
        """What answers depend on: all of it but the run, and of the model its identity alone."""
        return {
            "model": self.model.fingerprint,
            "sampling": self.sampling,
            "chatTemplateKwargs": self.chat_template_kwargs,
            "turns": self.turns.value,
        }

    @property
    def fingerprint(self) -> str:
        """The identity of what answers depend on."""
        return hashlib.sha256(canonical_json(self.binding())).hexdigest()[:16]


class PinnedDataset(ApiModel):
    """`source.json` of a dataset's folder: what a dataset of the hub was when it was first opened."""

    repo: str
    config: str | None
    split: str
    revision: str | None = Field(description="As the run's spec has it.")
    commit: str = Field(description="What the revision named; it is read from then on.")
    files: list[str] = Field(description="Files of the cache that hold its rows; it is loaded again without.")

    def is_of(self, wanted: HuggingFaceDataset) -> bool:
        """Whether the run's spec asks for the same as then."""
        return all(getattr(self, name) == getattr(wanted, name) for name in HuggingFaceDataset.model_fields)


class PartFile(ApiModel):
    """One file of records."""

    path: str = Field(description="Relative to the manifest.")
    bytes: int
    records: int = Field(description="Lines, whether their rows are still asked for or not.")
    sha256: str


class SourceFile(ApiModel):
    """A file that prompts were read from."""

    path: str = Field(description="On the data volume, in a pod.")
    bytes: int
    sha256: str


class SourceDataset(ApiModel):
    """A dataset of the hub that prompts were read from."""

    repo: str
    config: str | None
    split: str
    commit: str | None = Field(description="None of a local copy.")


class ManifestSource(ApiModel):
    """What the prompts of a dataset were read from, and how."""

    hugging_face: SourceDataset | None
    files: list[SourceFile]
    fields: Fields
    filters: Filters
    shuffle_seed: int | None
    max_samples: int | None
    rows: int = Field(description="Rows that were taken, duplicates and rows without a prompt included.")
    filtered: int = Field(description="Rows beside these, which the filters left out.")


class ManifestDataset(ApiModel):
    """One dataset: where its prompts are from, what they were asked with, and the files of its answers."""

    name: str
    source: ManifestSource
    sampling: dict[str, Any] = Field(description="As sent, with the run's values where it has none.")
    chat_template_kwargs: dict[str, Any]
    max_tokens: int | None
    files: list[PartFile]
    dead_letters: list[PartFile]


class Manifest(ApiModel):
    """`manifest.json`: the artefact of a SynthRun, by content."""

    kind: str = "SynthRun"
    version: int = 1
    made_by: str = Field(description="Draftmill and its version.")
    run: JobRun
    model: ModelFacts
    model_name: str
    tokenizer_sha256: str = Field(alias="tokenizerSHA256", description="Hash of the tokenizer's files.")
    chat_template_sha256: str = Field(alias="chatTemplateSHA256", description="Hash of the chat template.")
    datasets: list[ManifestDataset]
    records: int = Field(description="Records of the rows that the run asks for.")
    completion_tokens: int = Field(description="Tokens of the answers in these records.")
    strangers: int = Field(description="Further records in the files, of rows no longer asked for.")


class LengthBin(ApiModel):
    """How many answers have at most so many tokens, and more than the bin before."""

    up_to: int
    answers: int


class MedianFall(ApiModel):
    """Where the median length of the answers fell by half or more from one window of them to the next."""

    after: int = Field(description="Records before the window, in the order in which their rows were asked.")
    before: int = Field(description="Median tokens of the window before.")
    then: int = Field(description="Median tokens of the window.")


class AnswerQuality(ApiModel):
    """What the answers of one dataset look like: of its records that the run asks for, how many are so."""

    name: str
    records: int
    mean: float = Field(description="Tokens of an answer, as all lengths here.")
    percentiles: dict[str, int] = Field(
        description="Lengths that 10, 50, 90 and 99 % of answers do not exceed."
    )
    longest: int
    histogram: list[LengthBin]
    truncated: int = Field(description="Cut off by the limit, in or after the reasoning, or for repetition.")
    truncated_percent: float = Field(description="The same in per cent of the records.")
    repeated_tails: int = Field(description="The end is one stretch of tokens again and again.")
    repeated_tails_percent: float = Field(description="The same in per cent of the records.")
    empty: int = Field(description="Neither reasoning nor content but blanks.")
    replacement_characters: int = Field(
        description="With U+FFFD in the text: bytes that are no UTF-8, or a character that was cut."
    )
    think: dict[str, int] = Field(description="By where the reasoning opens.")
    malformed: int = Field(description="Think tokens do not add up.")
    duplicates: int = Field(description="Answers with the same tokens as an earlier one.")
    median_falls: list[MedianFall] = Field(
        max_length=16, description="The first of them; none is what one wants to see."
    )


class RowLengths(ApiModel):
    """How long rows are."""

    rows: int
    mean_tokens: float = Field(description="Of their answers; of rows that failed, those to be expected.")
    mean_prompt_bytes: float = Field(description="Of their messages as JSON.")


class LengthComparison(ApiModel):
    """Rows of one dataset that failed beside those that were answered, to see if they are the long ones."""

    name: str
    answered: RowLengths
    failed: RowLengths = Field(description="Those that were asked in vain.")
    warning: str = Field(description="What is wrong, in a sentence; empty when nothing is.")


class Summary(ApiModel):
    """`summary.json`: the accounting, for people and programs."""

    run: JobRun
    progress: RunProgress
    datasets: list[DatasetProgress]
    finish_reasons: dict[str, int]
    statuses: dict[str, int]
    dead_letter_reasons: dict[str, int]
    filtered: dict[str, int] = Field(
        description="Rows of each dataset's source that its filters left out; they are no rows of the run."
    )
    accounted: bool = Field(description="The kinds of rows add up to the total.")
    quality: list[AnswerQuality] = Field(description="What the answers of each dataset look like.")
    length_bias: list[LengthComparison] = Field(
        description="Whether the rows of each dataset that failed are the long ones."
    )
