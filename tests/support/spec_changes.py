"""A change of every field of a spec that can be changed by itself, one kind of run after the other."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.support.synthruns import Manifest


class Case(NamedTuple):
    """A change of the spec, and the table's entry that decides about it."""

    entry: str
    change: Manifest
    title: str = ""


_SERVER: Final[Manifest] = {
    "replicas": 2,
    "concurrencyPerReplica": 64,
    "keepAfterSuccess": "10m",
    "keepAfterFailure": "10m",
    "engine": "VLLM",
    "image": "lmsysorg/sglang:v0.5.24",
    "gpus": 4,
    "gpuProducts": ["NVIDIA-B200"],
    "tensorParallelSize": 4,
    "contextLength": 65536,
    "memFractionStatic": "0.5",
    "kvCacheDtype": "fp8_e4m3",
    "hierarchicalCacheGiBPerRank": 16,
    "startupTimeout": "1h",
    "sharedMemory": "8Gi",
    "extraArgs": ["--log-level", "debug"],
    "extraResources": {"rdma/ib": "4"},
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "other"}],
    "pod": {"priorityClassName": "low"},
}
_GENERATION: Final[Manifest] = {
    "api": "Generate",
    "chatTemplateKwargs": {"thinking": False},
    "concurrency": 8,
    "shortPromptTokens": 64,
    "concurrencyShort": 200,
    "requestsPerMinute": 600,
    "tokensPerMinute": 60000,
    "connectTimeout": "1s",
    "stallTimeout": "1h",
    "outageTimeout": "2h",
    "retries": 9,
    "errorPolicy": {"pausePercent": 50},
    "onPause": {"freeServersAfter": "1h"},
    "workers": 2,
    "pod": {"priorityClassName": "low"},
}
_OF_ALL_KINDS: Final[Manifest] = {
    "output": {"path": "elsewhere"},
    "suspend": True,
    "activeDeadline": "1h",
    "pendingDeadline": "1h",
    "backoffLimit": 1,
    "ttlAfterFinished": "24h",
    "restart": "2",
}
_OTHERS: Final = (
    Case("model", {"model": {"name": "other"}}),
    Case("model", {"model": {"trustRemoteCode": True}}, "trust in the model's code"),
    Case("storage", {"storage": {"data": {"persistentVolumeClaim": {"claimName": "other"}}}}),
    Case("sampling", {"sampling": {"temperature": "0.5"}}),
    Case("sampling", {"sampling": {"seed": 1}}, "a seed that was not given"),
    Case("datasets", {"datasets": [{"name": "B2", "source": {"file": {"path": "b2.jsonl"}}}]}),
)
SYNTH_CHANGES: Final[tuple[Case, ...]] = (
    *(Case(f"server.{name}", {"server": {name: value}}) for name, value in _SERVER.items()),
    *(Case(f"generation.{name}", {"generation": {name: value}}) for name, value in _GENERATION.items()),
    *_OTHERS,
    Case("resumeToken", {"resumeToken": "2"}),
    *(Case(name, {name: value}) for name, value in _OF_ALL_KINDS.items()),
)
GIVEN: Final[Manifest] = {
    "server": None,
    "endpoints": [{"name": "a", "url": "http://10.0.0.5:8000", "engine": "SGLang"}],
}
"""From servers of its own to given ones."""
SYNTH_SPEC: Final[Manifest] = {
    "server": {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}],
        "pod": {"labels": {"team": "a"}},
    },
    "generation": {"chatTemplateKwargs": {"thinking": True, "custom": {"deep": 1}}},
}
"""Fields of a SynthRun that the changes need to be there."""

_CLAIM: Final = {"persistentVolumeClaim": {"claimName": "other"}}
EXTRACT_CHANGES: Final[Manifest] = {
    "from": {"synthRun": {"name": "other"}},
    "model": {"name": "other", "path": "other"},
    "storage": {"models": _CLAIM, "data": _CLAIM},
    "backend": {"backend": "Transformers", "server": None},
    "layers": {"ids": [1, 2], "default": None},
    "dtype": "Float8",
    "maxRowTokens": 100,
    "onLongRow": "Skip",
    "rowFilter": ["ok"],
    "maxRows": 10,
    "shardSize": "1Gi",
    "workers": 2,
    "inFlightTokens": 1000,
    "retries": 9,
    "outageTimeout": "2h",
    "verify": {"teacherArgmaxSample": 2},
    "extraction": {"pod": {"priorityClassName": "low"}},
    **_OF_ALL_KINDS,
    "server.image": "vllm/vllm-openai:v0.34.0",
    "server.gpus": 4,
    "server.gpuProducts": ["NVIDIA-B200"],
    "server.tensorParallelSize": 4,
    "server.memFractionStatic": "0.5",
    "server.kvCacheDtype": "fp8_e4m3",
    "server.startupTimeout": "1h",
    "server.sharedMemory": "8Gi",
    "server.extraResources": {"rdma/ib": "4"},
    "server.resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "other"}],
    "server.extraArgs": ["--enforce-eager"],
    "server.pod": {"priorityClassName": "low"},
}
"""A change of each entry, but for those that the rules of the spec do not let stand alone."""
TRAIN_CHANGES: Final[Manifest] = {
    "from": {"extractRun": {"name": "other"}},
    "target": {"name": "other", "path": "other"},
    "storage": {"models": _CLAIM, "data": _CLAIM},
    "init": {"init": {"path": "eagle3"}, "scratch": None},
    "scratch": {"draftVocabSize": 16000},
    "training.epochs": 9,
    "training.learningRate": "3e-5",
    "training.schedule": "Linear",
    "training.warmupSteps": 9,
    "training.tttLength": 5,
    "training.tttDecay": "0.9",
    "training.tokensPerBatch": 8192,
    "training.maxRowTokens": 4096,
    "training.gradientClip": "1",
    "training.precision": "Float32",
    "training.seed": 1,
    "training.l2ToInit": "1e-6",
    "training.noiseStd": "0.05",
    "training.pod": {"priorityClassName": "low"},
    "nodes": 2,
    "gpusPerNode": 4,
    "gpuProducts": ["NVIDIA-B200"],
    "sharedMemory": "8Gi",
    "extraResources": {"rdma/ib": "4"},
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "other"}],
    "checkpoint": {"everySteps": 9},
    "heldOutPercent": 9,
    "export": {"layerIds": {"sglang": [1, 14, 26]}},
    "evaluation": {"server": {"engine": "VLLM", "image": "vllm:1"}},
    **_OF_ALL_KINDS,
}
"""A change of each entry."""
