"""Spec parts that every kind of run uses: model, storage, server, endpoints."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field
from pydantic.config import JsonDict

from draftmill_api.base import VALIDATIONS, ApiModel, Duration, Fraction, Quantity, Rule, says
from draftmill_api.v1alpha1.pod import PodOverrides, ResourceClaim

NO_WAY_UP: JsonDict = {
    VALIDATIONS: [
        {
            "rule": "!self.split('/').exists(part, part == '..')",
            "message": "a path may not go up: '..' is not allowed",
        }
    ]
}
"""JSON schema extra of a path that stays below a folder."""

RelativePath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        pattern=r"^[A-Za-z0-9._][A-Za-z0-9._/@+=-]*$",
        json_schema_extra=NO_WAY_UP
        | says(
            "write a path below the volume's root, without a leading '/': letters, digits and . _ - / @ + ="
        ),
    ),
]
"""A path below a volume's root."""

AbsoluteFolder = Annotated[
    str,
    Field(
        min_length=2,
        max_length=1024,
        pattern=r"^/.",
        json_schema_extra=NO_WAY_UP | says("write an absolute path, which begins with '/'"),
    ),
]
"""A folder of a node or of an NFS server."""


class Engine(StrEnum):
    """Inference engines that Draftmill can start and talk to."""

    VLLM = "VLLM"
    SGLANG = "SGLang"


class SecretKeyRef(ApiModel):
    """One key of a Secret in the run's namespace."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")
    key: str = Field(min_length=1, max_length=253, description="Key inside the Secret.")


class HuggingFaceModel(ApiModel):
    """A model on the Hugging Face hub, downloaded once to the models volume by the plan."""

    repo: str = Field(
        min_length=1, max_length=256, description="Repository, for example moonshotai/Kimi-K2.5."
    )
    revision: str = Field(
        default="main", min_length=1, max_length=128, description="Branch, tag or commit to download."
    )
    token_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Secret with the access token, for gated or private repositories."
    )


class Model(ApiModel):
    """The target model; exactly one of path and huggingFace."""

    EXACTLY_ONE_OF = ("path", "hugging_face")

    name: str = Field(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        description="Name under which the server serves the model and which the records carry.",
        json_schema_extra=says(
            "a model name has letters, digits and . _ - / and begins with a letter or digit"
        ),
    )
    path: RelativePath | None = Field(
        default=None,
        description="Folder of the model below storage.models.",
    )
    hugging_face: HuggingFaceModel | None = Field(
        default=None,
        description="Model on the Hugging Face hub; needs a models volume that can be written.",
    )
    trust_remote_code: bool = Field(
        default=False,
        description="Allow the Python code that the model's folder brings to run in servers and jobs.",
    )


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim in the run's namespace."""

    claim_name: str = Field(min_length=1, max_length=253, description="Name of the claim.")


class HostPathVolume(ApiModel):
    """A folder of the node. Refused unless the chart allows its prefix."""

    path: AbsoluteFolder = Field(description="Absolute path of the folder on the node.")


class NfsVolume(ApiModel):
    """An export of an NFS server."""

    server: str = Field(min_length=1, max_length=253, description="Host name or address of the NFS server.")
    path: AbsoluteFolder = Field(description="Exported path.")


class Volume(ApiModel):
    """Where data lies: exactly one of a claim, a folder of the node, an NFS export. Never an emptyDir."""

    EXACTLY_ONE_OF = ("persistent_volume_claim", "host_path", "nfs")

    persistent_volume_claim: ClaimVolume | None = Field(
        default=None, description="A PersistentVolumeClaim in the run's namespace."
    )
    host_path: HostPathVolume | None = Field(
        default=None, description="A folder of the node, under a prefix that the chart allows."
    )
    nfs: NfsVolume | None = Field(default=None, description="An NFS export.")


_NOT_ROOT = says("job pods do not run as root: write a numeric id above 0")


class RunAs(ApiModel):
    """The user and group of the job pods; the data volume must let them write."""

    user: int = Field(
        default=65532, ge=1, le=2147483647, description="Numeric user id.", json_schema_extra=_NOT_ROOT
    )
    group: int = Field(
        default=65532, ge=1, le=2147483647, description="Numeric group id.", json_schema_extra=_NOT_ROOT
    )


class Storage(ApiModel):
    """The volumes of a run."""

    models: Volume = Field(
        description="Volume with the models, mounted at /models; read-only unless model.huggingFace is used."
    )
    data: Volume = Field(description="Volume for prompts and results, mounted at /data.")
    run_as: RunAs = Field(default_factory=RunAs, description="User and group of the job pods.")


class Server(ApiModel):
    """Inference servers that the operator starts for the run and removes at its end."""

    RULES = (
        Rule(
            "self.engine == 'SGLang' || !has(self.hierarchicalCacheGiBPerRank)",
            "hierarchicalCacheGiBPerRank is a feature of SGLang; remove it or use engine SGLang",
        ),
        Rule(
            "self.gpus == 0 || !has(self.tensorParallelSize) || self.tensorParallelSize <= self.gpus",
            "tensorParallelSize cannot be larger than gpus: one server is one pod",
        ),
    )

    engine: Engine = Field(description="Inference engine: VLLM or SGLang.")
    image: str = Field(
        min_length=1,
        max_length=512,
        description="Container image with the engine, for example lmsysorg/sglang:v0.5.23.",
    )
    replicas: int = Field(default=1, ge=1, le=64, description="Number of server pods.")
    gpus: int = Field(
        default=8, ge=0, le=16, description="GPUs of each server pod (nvidia.com/gpu); 0 serves on CPU."
    )
    gpu_products: list[Annotated[str, Field(min_length=1, max_length=63)]] | None = Field(
        default=None,
        max_length=16,
        description="Accepted values of the node label nvidia.com/gpu.product; any when left out.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    tensor_parallel_size: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="Tensor parallel size; the number of GPUs (at least 1) when left out.",
    )
    context_length: int | None = Field(
        default=None,
        ge=1,
        le=16_777_216,
        description="Longest sequence in tokens, prompt and answer; the model's own limit when left out.",
    )
    mem_fraction_static: Fraction | None = Field(
        default=None,
        description="Fraction of GPU memory for weights and KV cache (vLLM: --gpu-memory-utilization).",
    )
    kv_cache_dtype: str | None = Field(
        default=None,
        max_length=32,
        pattern=r"^[a-z0-9_]+$",
        description="Data type of the KV cache, for example bfloat16.",
        json_schema_extra=says("write the engine's name of a data type, for example bfloat16 or fp8_e4m3"),
    )
    hierarchical_cache_gi_b_per_rank: int | None = Field(
        default=None,
        alias="hierarchicalCacheGiBPerRank",
        ge=1,
        le=4096,
        description="Host memory in GiB for each rank as a second KV cache (SGLang only).",
    )
    startup_timeout: Duration = Field(
        default="45m", description="How long a server may take to load the model before it is restarted."
    )
    keep_after_success: Duration | None = Field(
        default=None,
        description="Servers stay for so long after the run's success; they go at once when left out.",
    )
    keep_after_failure: Duration | None = Field(
        default=None,
        description="Servers stay for so long after the run's failure; they go at once when left out.",
    )
    shared_memory: Quantity = Field(
        default="16Gi", description="Size of /dev/shm; it counts against the pod's memory."
    )
    extra_args: list[Annotated[str, Field(max_length=1024)]] | None = Field(
        default=None, max_length=64, description="Further arguments for the engine's command line."
    )
    extra_resources: dict[str, Quantity] | None = Field(
        default=None, max_length=16, description="Further extended resources of the pod, for example rdma/ib."
    )
    resource_claims: list[ResourceClaim] | None = Field(
        default=None,
        max_length=8,
        description="Dynamic resource allocation claims of the pod, passed through.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    pod: PodOverrides | None = Field(default=None, description="Overrides of the server pods.")


class Endpoint(ApiModel):
    """An inference server that answers requests."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        description="Name for logs and records.",
        json_schema_extra=says("an endpoint's name has small letters, digits, '-' and '.'"),
    )
    url: str = Field(
        min_length=1,
        max_length=512,
        pattern=r"^https?://[^/@\s]+$",
        description="Base address without a path and without user and password, for example "
        "http://10.0.0.5:8000.",
        json_schema_extra=says(
            "write a base address without a path and without user and password, "
            "which would stand in logs and status, for example http://10.0.0.5:8000"
        ),
    )
    engine: Engine = Field(description="Inference engine behind the address: VLLM or SGLang.")


__all__ = [
    "ClaimVolume",
    "Endpoint",
    "Engine",
    "HostPathVolume",
    "HuggingFaceModel",
    "Model",
    "NfsVolume",
    "RelativePath",
    "RunAs",
    "SecretKeyRef",
    "Server",
    "Storage",
    "Volume",
]
