"""A store of hidden states: `index.jsonl`, the journal of an open shard, `store.json`, `manifest.json`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from draftmill_api.base import ApiModel
from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import PartFile
from draftmill_api.record import RecordStatus
from draftmill_api.v1alpha1.extractrun import Backend, OnLongRow, SkippedRows, StateDtype
from draftmill_api.v1alpha1.status import ModelFacts

ROW_HASH: Final = "xxh3-128"
"""Hash of a row, in hexadecimal: over states, with Float8 scale, token ids and loss mask, in this order."""


class LayerConvention(StrEnum):
    """What a layer id names. There is one convention; it is written down, for readers know another."""

    ENTERING_LAYER = "entering layer"
    """Id i is the residual stream before layer i; id L is after the last layer, before the final norm."""


class ComputedIn(StrEnum):
    """The dtype that states came in, before they were stored in the store's."""

    BFLOAT16 = "BFloat16"
    FLOAT16 = "Float16"
    FLOAT32 = "Float32"


class _Line(BaseModel):
    """snake_case JSON, keys in the order of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Float8Error(_Line):
    """Relative L2 error of (token, layer) vectors after encoding to Float8 and decoding."""

    mean: float = Field(ge=0)
    worst: float = Field(ge=0)


class RowFacts(_Line):
    """What is known of a row before its states are."""

    dataset: str
    id: str
    prompt_key: str = Field(description="Of the record.")
    conversation: str | None = Field(
        default=None,
        description="Key of what the conversation begins with, where each of its turns is a row; left out "
        "where the row is the only one of its conversation.",
    )
    turn: int = Field(ge=0, description="Assistant turns before the answer.")
    prompt_tokens: int = Field(ge=0, description="Tokens before the answer.")
    status: RecordStatus = Field(description="Of the record.")
    temperature: float | None = Field(
        default=None, ge=0, description="At which the answer was sampled: 0 is greedy. Left out when unknown."
    )

    @property
    def key(self) -> tuple[str, str]:
        """The row's identity everywhere."""
        return self.dataset, self.id

    @property
    def split_key(self) -> str:
        """Rows that have it in common are held out of training together: of one prompt, or conversation."""
        return self.conversation or self.prompt_key


class StoreLine(RowFacts):
    """One line of `index.jsonl`: a row, and where it is.

    At `offset` in the shard stand, one after another: states `[tokens, states, hidden]`; with Float8 the
    scale `f32[tokens, states]`; token ids `i32[tokens]`. The loss masks `u8[tokens]` of all rows end the
    shard.
    """

    tokens: int = Field(ge=1, description="Tokens whose states are stored: after the cut.")
    shard: str = Field(description="File name.")
    offset: int = Field(ge=0, description="Where in the file the row's states start, in bytes.")
    hash: str = Field(description=f"{ROW_HASH} of the row's bytes.")
    float8_error: Float8Error | None = Field(default=None, description="With Float8 only.")
    computed_in: ComputedIn | None = Field(
        default=None, description="Dtype that the states came in. Left out in stores that did not note it."
    )


class JournalLine(_Line):
    """One line of an open shard's journal: a row that is durable though the shard has no header yet."""

    row: StoreLine
    loss_spans: list[tuple[int, int]] = Field(
        description="Half-open ranges of tokens whose loss counts: the mask, which is written at sealing."
    )


class StoreBinding(ApiModel):
    """What every row of a store has in common. A store that exists with another binding is refused."""

    model_fingerprint: str
    layer_ids: list[int] = Field(min_length=1, description="Ascending; the last is the number of layers.")
    layer_convention: LayerConvention = LayerConvention.ENTERING_LAYER
    hidden_size: int = Field(ge=1)
    dtype: StateDtype
    max_row_tokens: int | None = Field(default=None, ge=1)
    on_long_row: OnLongRow = OnLongRow.CUT
    backend: Backend | None = Field(
        default=None, description="What computes the states. None in stores that did not note it."
    )


class StoreFolder(ApiModel):
    """`store.json`: what a store is bound to, from its first row on."""

    kind: Literal["DraftmillStore"] = "DraftmillStore"
    version: Literal[1] = 1
    binding: StoreBinding
    workers: int = Field(ge=1, description="How many share the rows now.")
    run: JobRun = Field(description="The run that last wrote here.")


class StoreSource(ApiModel):
    """The records that the rows come from."""

    path: str = Field(description="Their folder.")
    sha256: str = Field(description="Of their manifest; of the files' content without one.")


class RowSelection(ApiModel):
    """Which records became rows."""

    statuses: list[RecordStatus]
    max_rows: int | None = Field(default=None, ge=1)


class StoreShard(PartFile):
    """One sealed shard."""

    tokens: int = Field(ge=1)


class StoreManifest(ApiModel):
    """`manifest.json`: the artefact of an ExtractRun, by content."""

    kind: Literal["ExtractRun"] = "ExtractRun"
    version: Literal[1] = 1
    run: JobRun
    model: ModelFacts
    model_name: str
    tokenizer_sha256: str = Field(alias="tokenizerSHA256", description="Hash of the tokenizer's files.")
    chat_template_sha256: str = Field(alias="chatTemplateSHA256", description="Hash of the chat template.")
    binding: StoreBinding
    pre_norm: Literal[True] = Field(
        default=True, description="The last state is stored as it enters the final norm."
    )
    source: StoreSource
    selection: RowSelection
    rows: int = Field(ge=1)
    tokens: int = Field(ge=1)
    bytes: int = Field(ge=1, description="Of all shards.")
    cut_rows: int = Field(ge=0, description="Rows cut to maxRowTokens.")
    cut_tokens: int = Field(ge=0, description="Tokens cut off.")
    skipped: SkippedRows = Field(description="Records left out on purpose, by why.")
    quarantined: dict[str, int] = Field(description="Records whose states were refused, by reason.")
    computed_in: dict[ComputedIn, int] = Field(
        default_factory=dict, description="Rows by the dtype that their states came in, where that is known."
    )
    row_hash: Literal["xxh3-128"] = Field(default=ROW_HASH, description="What the index hashes rows with.")
    index: PartFile
    shards: list[StoreShard]
    float8_error: Float8Error | None = Field(
        default=None, description="Over all (token, layer); with Float8 only."
    )
