"""Where a run's input comes from: an earlier run of the same namespace, or a path."""

from __future__ import annotations

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.shared import Model, RelativePath, Storage, Volume
from draftmill_api.v1alpha1.status import Count, Sha256, VolumePath


class RunRef(ApiModel):
    """A run in the same namespace."""

    name: str = Field(min_length=1, max_length=253, description="Name of the run.")


class FromSynthRun(ApiModel):
    """The input of an ExtractRun: exactly one of synthRun and path."""

    CALLED = "run's from"
    EXACTLY_ONE_OF = ("synth_run", "path")

    synth_run: RunRef | None = Field(
        default=None,
        description="A SynthRun of this namespace, whose output is used once it is Complete.",
    )
    path: RelativePath | None = Field(
        default=None,
        description="Folder below storage.data with one folder of raw_responses*.jsonl for each dataset.",
    )


class FromExtractRun(ApiModel):
    """The input of a DrafterTrain: exactly one of extractRun and path."""

    CALLED = "run's from"
    EXACTLY_ONE_OF = ("extract_run", "path")

    extract_run: RunRef | None = Field(
        default=None,
        description="An ExtractRun of this namespace, whose store is used once it is Complete.",
    )
    path: RelativePath | None = Field(
        default=None, description="Folder of a store of hidden states below storage.data."
    )


class RunInput(ApiModel):
    """What a run was bound to, once: the earlier run may vanish afterwards."""

    kind: str = Field(max_length=64, description="Kind of the earlier run.")
    name: str = Field(max_length=253, description="Name of the earlier run.")
    uid: str = Field(max_length=64, description="Its uid.")
    volume: Volume = Field(description="Volume with its output.")
    path: VolumePath = Field(description="Folder of its output on the volume.")
    manifest: VolumePath = Field(description="Its manifest, on the volume.")
    manifest_sha256: Sha256 = Field(alias="manifestSHA256", description="Hash of the manifest.")
    records: Count = Field(description="Records in it; rows, if it is a store.")
    tokens: Count = Field(description="Tokens in it.")
    model_fingerprint: Sha256 = Field(description="Identity of the model it was made with.")
    model: Model = Field(description="The earlier run's spec.model, used where this run's is left out.")
    storage: Storage = Field(description="The earlier run's spec.storage, used where this run's is left out.")


__all__ = ["FromExtractRun", "FromSynthRun", "RunInput", "RunRef"]
