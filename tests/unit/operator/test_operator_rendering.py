"""Every rendered child against a reviewed file; `UPDATE_GOLDEN=1 pytest ...` writes them anew."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_api.v1alpha1.synthrun import SynthRunSpec
from draftmill_operator.render.config import config_text, render_config
from draftmill_operator.render.defaults import DEFAULTS_KEY, FrozenDefaults, render_defaults
from draftmill_operator.render.jobs import JobRequest, render_job
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.server import render_server, render_service, server_template
from draftmill_operator.run import Role
from draftmill_operator.settings import ImagePullPolicy
from tests.unit.operator.builders import IDENTITY, SYNTH, as_run, spec

GOLDEN = Path(__file__).parent / "golden"
DEFAULTS = FrozenDefaults(
    job_image="registry.example/draftmill-jobs:0.1.0",
    trainer_image="registry.example/draftmill-jobs-train:0.1.0",
    image_pull_policy=ImagePullPolicy.IF_NOT_PRESENT,
    image_pull_secrets=[{"name": "regcred"}],
    server=PodOverrides(env=[{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}]),
    job=PodOverrides(node_selector={"pool": "cpu"}),
)
KIMI: dict[str, Any] = {
    "model": {"name": "kimi-k2.5", "path": "kimi-k2.5-int4", "trustRemoteCode": True},
    "server": {
        "engine": "SGLang",
        "image": "lmsysorg/sglang:v0.5.23",
        "gpuProducts": ["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"],
        "tensorParallelSize": 8,
        "contextLength": 131072,
        "memFractionStatic": "0.88",
        "kvCacheDtype": "bfloat16",
        "hierarchicalCacheGiBPerRank": 48,
        "extraResources": {"rdma/ib": "8"},
    },
}
SMALL: dict[str, Any] = {
    "model": {"name": "smol", "path": "smollm2-135m"},
    "server": {
        "engine": "VLLM",
        "image": "localhost/server:1",
        "gpus": 0,
        "replicas": 2,
        "contextLength": 2048,
        "startupTimeout": "5m",
        "sharedMemory": "1Gi",
        "extraArgs": ["--enforce-eager"],
        "pod": {
            "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "2"}],
            "volumes": [{"name": "env", "persistentVolumeClaim": {"claimName": "server-env"}}],
            "volumeMounts": [{"name": "env", "mountPath": "/opt/env", "readOnly": True}],
        },
    },
}
HUB = {
    "model": {
        "name": "kimi",
        "huggingFace": {
            "repo": "moonshotai/Kimi-K2.5",
            "revision": "refs/pr/1",
            "tokenSecretRef": {"name": "hub", "key": "token"},
        },
    }
}


def server(run: SynthRunSpec) -> Manifest:
    assert run.server is not None
    template = server_template(IDENTITY, run.model, run.storage.models, run.server, DEFAULTS)
    return render_server(IDENTITY, run.server, template, run.server.replicas)


def config(run: SynthRunSpec) -> Manifest:
    endpoints = (Endpoint(name="one", url="http://10.0.0.5:8000", engine=Engine.SGLANG),)
    return render_config(IDENTITY, config_text(SYNTH.config(as_run(run), endpoints)))


def job(role: Role, run: SynthRunSpec) -> Manifest:
    attempt = 3 if role is Role.WORKER else 0
    return render_job(IDENTITY, SYNTH.workload(as_run(run)), DEFAULTS, JobRequest(role, "c0ffee", 6, attempt))


CHILDREN: dict[str, Callable[[], Manifest]] = {
    "defaults": lambda: render_defaults(IDENTITY, DEFAULTS),
    "config": lambda: config(spec(**KIMI)),
    "config-hub": lambda: config(spec(**HUB)),
    "plan": lambda: job(Role.PLAN, spec(**KIMI)),
    "plan-hub": lambda: job(Role.PLAN, spec(**HUB)),
    "worker": lambda: job(Role.WORKER, spec(**KIMI, generation={"pod": {"priorityClassName": "low"}})),
    "finish": lambda: job(Role.FINISH, spec(**KIMI)),
    "server-sglang": lambda: server(spec(**KIMI)),
    "server-vllm-cpu": lambda: server(spec(**SMALL)),
    "service": lambda: render_service(IDENTITY),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_is_rendered_as_reviewed(name: str) -> None:
    path, text = GOLDEN / f"{name}.yaml", yaml.safe_dump(CHILDREN[name](), sort_keys=False, width=100)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert yaml.safe_load(text) == yaml.safe_load(path.read_text())


def test_rendering_does_not_depend_on_the_order_of_keys() -> None:
    raw = spec(**KIMI).to_json()
    expected = [server(spec(**raw)), config(spec(**raw)), job(Role.WORKER, spec(**raw))]
    for seed in range(20):
        shuffled = _shuffled(copy.deepcopy(raw), random.Random(seed))
        again = [server(spec(**shuffled)), config(spec(**shuffled)), job(Role.WORKER, spec(**shuffled))]
        assert again == expected


def test_frozen_defaults_come_back_as_they_were() -> None:
    text = render_defaults(IDENTITY, DEFAULTS)["data"][DEFAULTS_KEY]
    assert FrozenDefaults.model_validate_json(text) == DEFAULTS


def test_a_label_of_the_run_is_on_no_child() -> None:
    """Argo's and Helm's tracking labels would make them delete the children."""
    for render in CHILDREN.values():
        labels = render()["metadata"]["labels"]
        assert set(labels) - {"app.kubernetes.io/managed-by"} == {
            label for label in labels if label.startswith("draftmill.dev/")
        }


@pytest.mark.parametrize("role", [Role.PLAN, Role.WORKER, Role.FINISH])
def test_a_job_pod_fits_the_restricted_profile_and_has_no_token(role: Role) -> None:
    pod = job(role, spec(**KIMI))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsGroup"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_what_operator_and_job_rely_on_cannot_be_overridden() -> None:
    env = [{"name": "DRAFTMILL_WORKER", "value": "7/8"}, {"name": "HF_HOME", "value": "/data/hub"}]
    pod = job(Role.WORKER, spec(**KIMI, generation={"pod": {"env": env}}))["spec"]["template"]["spec"]
    values = {item["name"]: item["value"] for item in pod["containers"][0]["env"]}
    assert values["DRAFTMILL_WORKER"] == "0/1"
    assert values["HF_HOME"] == "/data/hub"


def _shuffled(value: Any, source: random.Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(item, source) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    source.shuffle(keys)
    return {key: _shuffled(value[key], source) for key in keys}


@pytest.mark.parametrize("role", [Role.PLAN, Role.WORKER, Role.FINISH])
def test_models_and_data_on_one_claim_are_one_volume_of_a_job(role: Role) -> None:
    """A kubelet waits for the second volume of a claim without an end."""
    claim = {"persistentVolumeClaim": {"claimName": "everything"}}
    pod = job(role, spec(**KIMI, storage={"models": claim, "data": claim}))["spec"]["template"]["spec"]
    (volume,) = (volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume)
    mounts = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert mounts == [
        {"name": volume["name"], "mountPath": "/models", "readOnly": True},
        {"name": volume["name"], "mountPath": "/data"},
    ]


def test_a_claim_that_a_server_has_a_second_time_only_to_read_is_mounted_so() -> None:
    again = {"name": "again", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    pod = {
        "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "models"}}, again],
        "volumeMounts": [
            {"name": "cache", "mountPath": "/cache", "readOnly": True},
            {"name": "again", "mountPath": "/again"},
        ],
    }
    rendered = server(spec(**{**SMALL, "server": SMALL["server"] | {"pod": pod}}))["spec"]["template"]["spec"]
    claims = [volume for volume in rendered["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
    (container,) = rendered["containers"]
    paths = {
        one["mountPath"]: one.get("readOnly", False)
        for one in container["volumeMounts"]
        if one["name"] == "models"
    }
    assert paths == {"/models": True, "/cache": True, "/again": True}
