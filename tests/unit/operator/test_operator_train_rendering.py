"""The children of a DrafterTrain against reviewed files; `UPDATE_GOLDEN=1 pytest ...` writes them anew."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from draftmill_api.v1alpha1.draftertrain import DrafterTrainSpec, DrafterTrainStatus
from draftmill_api.v1alpha1.extractrun import ExtractRunStatus
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_operator.kinds.draftertrain import DrafterTrainKind
from draftmill_operator.kinds.extractrun import ExtractRunKind
from draftmill_operator.render.config import config_text, render_config
from draftmill_operator.render.jobs import JobRequest, render_job
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.names import NAME_LIMIT, child_name
from draftmill_operator.render.ranks import ranks_service
from draftmill_operator.run import DRAFTERTRAIN, EVALUATIONS, Role, Run, RunIdentity, RunKey
from tests.support.draftertrains import smallest_drafter_train, train_plan
from tests.support.extractruns import extract_finish_message
from tests.unit.operator.test_operator_extract_rendering import CPU_SERVER, GPU_SERVER, claim, extract
from tests.unit.operator.test_operator_rendering import DEFAULTS, GOLDEN

TRAIN = DrafterTrainKind()
IDENTITY = RunIdentity(RunKey(DRAFTERTRAIN, "team", "k25-10k"), uid="0b1f-train")
GPUS: dict[str, Any] = {
    "nodes": 2,
    "gpusPerNode": 8,
    "gpuProducts": ["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"],
    "sharedMemory": "64Gi",
    "extraResources": {"rdma/ib": "8"},
    "resourceClaims": [{"name": "fabric", "resourceClaimTemplateName": "imex"}],
    "scratch": None,
    "init": {"path": "kimi-k2.5-eagle3", "layerConvention": "EnteringLayer"},
    "training": {
        "epochs": 5,
        "pod": {
            "labels": {"team": "a"},
            "priorityClassName": "gpu",
            "nodeSelector": {"pool": "gpu"},
            "resources": {"requests": {"memory": "400Gi"}},
        },
    },
}
EVALUATION: dict[str, Any] = {"server": GPU_SERVER, "draftTokens": 4, "maxRows": 16, "concurrency": [1, 8]}
DEFAULTS_OF_TRAINERS = DEFAULTS.model_copy(
    update={
        "trainer": PodOverrides(
            env=[{"name": "PYTHONPATH", "value": "/opt/torch"}],
            volumes=[{"name": "torch", "persistentVolumeClaim": {"claimName": "torch"}}],
            volume_mounts=[{"name": "torch", "mountPath": "/opt/torch", "readOnly": True}],
            scheduler_name="gang",
            resources={"requests": {"memory": "900Gi"}},
        )
    }
)


def train(volume: str = "eagle3", **parts: Any) -> Run[DrafterTrainSpec, DrafterTrainStatus]:
    """A planned run that is bound to a Complete ExtractRun; `volume` is the claim of its own data."""
    earlier = extract()
    finished = ExtractRunKind().finished(earlier, extract_finish_message(100))
    assert finished is not None
    output = finished.output.model_copy(update={"volume": claim("eagle3")})
    status = ExtractRunStatus.model_validate(earlier.status.model_dump() | {"output": output})
    published = ExtractRunKind().published(
        Run(earlier.identity, 1, being_deleted=False, spec=earlier.spec, status=status)
    )
    assert published is not None
    storage = published.storage.model_copy(update={"data": claim(volume)})
    raw = smallest_drafter_train("any")["spec"] | {"storage": storage.to_json()} | parts
    spec = DrafterTrainSpec.model_validate({key: value for key, value in raw.items() if value is not None})
    bound = DrafterTrainStatus(input=published, plan=train_plan(2450))
    return Run(IDENTITY, 1, being_deleted=False, spec=spec, status=bound)


def job(role: Role, of: Run[DrafterTrainSpec, DrafterTrainStatus], **request: Any) -> Manifest:
    attempt = 2 if role is Role.WORKER else 0
    wanted = JobRequest(role, "c0ffee", 6, attempt, **request)
    return render_job(IDENTITY, TRAIN.workload(of), DEFAULTS_OF_TRAINERS, wanted)


CHILDREN: dict[str, Callable[[], Manifest]] = {
    "train-config": lambda: render_config(IDENTITY, config_text(TRAIN.config(train(**GPUS), ()))),
    "train-plan": lambda: job(Role.PLAN, train(volume="drafters", **GPUS)),
    "train-service": lambda: ranks_service(IDENTITY),
    "train-worker-gpu": lambda: job(Role.WORKER, train(volume="drafters", **GPUS), on_one_node=True),
    "train-worker-cpu": lambda: job(
        Role.WORKER, train(gpusPerNode=0, sharedMemory="1Gi", training={"precision": "Float32"})
    ),
    "train-evaluate-plain": lambda: job(Role.EVALUATE_PLAIN, train(**GPUS, evaluation=EVALUATION)),
    "train-evaluate-draft": lambda: job(
        Role.EVALUATE_DRAFT,
        train(volume="drafters", gpusPerNode=0, evaluation=EVALUATION | {"server": CPU_SERVER}),
    ),
    "train-finish": lambda: job(Role.FINISH, train(**GPUS)),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_of_a_drafter_train_is_rendered_as_reviewed(name: str) -> None:
    child = json.loads(json.dumps(CHILDREN[name]()))  # without YAML's references to equal parts
    path, text = GOLDEN / f"{name}.yaml", yaml.safe_dump(child, sort_keys=False, width=100)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert yaml.safe_load(text) == yaml.safe_load(path.read_text())


def pod_of(manifest: Manifest) -> Any:
    return manifest["spec"]["template"]["spec"]


def environment(manifest: Manifest) -> dict[str, Any]:
    (container,) = pod_of(manifest)["containers"]
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def test_all_ranks_start_at_once_and_one_that_fails_ends_them_all() -> None:
    spec = job(Role.WORKER, train(**GPUS))["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["backoffLimit"] == 0
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])


def test_the_environment_is_torchruns() -> None:
    manifest = job(Role.WORKER, train(**GPUS))
    found = environment(manifest)
    assert {name: value for name, value in found.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "8",
        "PET_NODE_RANK": {
            "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
        },
        "PET_MASTER_ADDR": f"{manifest['metadata']['name']}-0.k25-10k-dt-worker",
        "PET_MASTER_PORT": "29500",
    }


def test_the_first_rank_has_the_host_name_that_the_others_are_told() -> None:
    manifest, service = job(Role.WORKER, train(**GPUS)), ranks_service(IDENTITY)
    assert pod_of(manifest)["subdomain"] == service["metadata"]["name"]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_on_cpu_each_node_has_one_process_and_no_gpu_is_asked_for() -> None:
    manifest = job(Role.WORKER, train(gpusPerNode=0, nodes=3))
    assert environment(manifest)["PET_NPROC_PER_NODE"] == "1"
    (container,) = pod_of(manifest)["containers"]
    assert "limits" not in container["resources"]
    assert "tolerations" not in pod_of(manifest)


def test_trainers_have_a_place_and_resources_of_their_own() -> None:
    worker, plan = job(Role.WORKER, train(**GPUS)), job(Role.PLAN, train(**GPUS))
    assert (pod_of(worker)["priorityClassName"], pod_of(worker)["nodeSelector"]) == ("gpu", {"pool": "gpu"})
    assert pod_of(worker)["schedulerName"] == "gang"
    assert pod_of(plan)["nodeSelector"] == {"pool": "cpu"}
    assert not pod_of(plan).keys() & {"priorityClassName", "schedulerName"}
    assert pod_of(plan)["containers"][0]["resources"] == {"requests": {"cpu": "100m", "memory": "512Mi"}}
    labels = [each["spec"]["template"]["metadata"]["labels"]["team"] for each in (worker, plan)]
    assert labels == ["a", "a"]


@pytest.mark.parametrize("role", [Role.PLAN, Role.WORKER, Role.FINISH])
def test_every_job_has_the_image_and_the_environment_with_torch(role: Role) -> None:
    manifest = job(role, train(**GPUS))
    (container,) = pod_of(manifest)["containers"]
    assert container["image"] == DEFAULTS.trainer_image
    assert environment(manifest)["PYTHONPATH"] == "/opt/torch"
    assert {"name": "torch", "mountPath": "/opt/torch", "readOnly": True} in container["volumeMounts"]
    assert "torch" in {volume["name"] for volume in pod_of(manifest)["volumes"]}


def test_one_server_alone_has_the_drafter_and_reads_it_from_the_data_volume() -> None:
    with_evaluation = train(**GPUS, evaluation=EVALUATION)
    (plain,), (drafting,) = (pod_of(job(role, with_evaluation))["initContainers"] for role in EVALUATIONS)
    assert drafting["command"][:-2] == plain["command"]
    assert drafting["command"][-2] == "--speculative-config"
    assert json.loads(drafting["command"][-1]) == {
        "method": "eagle3",
        "model": "/data/drafters/k25/drafter/vllm",
        "num_speculative_tokens": 4,
    }
    (mounted,) = [mount for mount in drafting["volumeMounts"] if mount not in plain["volumeMounts"]]
    assert mounted == {"name": "data", "mountPath": "/data", "readOnly": True}


@pytest.mark.parametrize("role", EVALUATIONS)
def test_an_evaluation_on_cpu_compiles_nothing_neither_time_unless_the_run_says_so(role: Role) -> None:
    def server(given: dict[str, Any]) -> Any:
        (found,) = pod_of(job(role, train(evaluation=EVALUATION | {"server": given})))["initContainers"]
        return found

    def compiling(given: dict[str, Any]) -> Any:
        return [item["value"] for item in server(given)["env"] if item["name"] == "TORCHDYNAMO_DISABLE"]

    own = {**CPU_SERVER, "pod": {"env": [{"name": "TORCHDYNAMO_DISABLE", "value": "0"}]}}
    sglang = {**CPU_SERVER, "engine": "SGLang", "extraArgs": []}
    assert server(CPU_SERVER)["command"][-2:] == ["--enforce-eager", "--max-num-seqs=32"]
    assert (compiling(CPU_SERVER), compiling(own)) == (["1"], ["0"])
    for other in (GPU_SERVER, sglang):
        assert compiling(other) == []
        assert "--enforce-eager" not in server(other)["command"]


def test_sglang_drafts_in_a_chain_from_its_own_folder() -> None:
    server = GPU_SERVER | {"engine": "SGLang", "image": "lmsysorg/sglang:v0.5.23"}
    (drafting,) = pod_of(job(Role.EVALUATE_DRAFT, train(evaluation=EVALUATION | {"server": server})))[
        "initContainers"
    ]
    command = " ".join(drafting["command"])
    assert "--speculative-draft-model-path /data/drafters/k25/drafter/sglang" in command
    assert "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5" in command


@pytest.mark.parametrize("role", EVALUATIONS)
def test_the_pod_of_an_evaluation_ends_with_its_job_and_holds_gpus_no_longer(role: Role) -> None:
    manifest = job(role, train(**GPUS, evaluation=EVALUATION))
    pod = pod_of(manifest)
    (server,), (container,) = pod["initContainers"], pod["containers"]
    assert (pod["restartPolicy"], server["restartPolicy"]) == ("Never", "Always")
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert "limits" not in container["resources"]
    assert pod["priorityClassName"] == "gpu"
    assert container["securityContext"]["runAsUser"] == 65532
    assert "runAsUser" not in pod["securityContext"]
    assert container["image"] == DEFAULTS.trainer_image


def test_an_evaluation_asks_the_server_beside_it_whichever_that_is() -> None:
    asked = TRAIN.config(train(evaluation=EVALUATION), ()).evaluation
    assert asked is not None
    assert {asked.plain.url, asked.drafting.url} == {"http://127.0.0.1:8000"}
    assert (asked.plain.name, asked.drafting.name) == ("plain", "drafting")
    assert (asked.max_rows, asked.max_tokens, asked.concurrency) == (16, 256, [1, 8])
    assert TRAIN.config(train(), ()).evaluation is None


def test_the_place_of_a_gpu_holds_beside_one_node_for_all() -> None:
    affinity = pod_of(job(Role.WORKER, train(**GPUS), on_one_node=True))["affinity"]
    assert affinity.keys() == {"nodeAffinity", "podAffinity"}


def test_the_store_is_mounted_read_only_where_it_lies_on_another_volume() -> None:
    (container,) = pod_of(job(Role.WORKER, train(volume="drafters")))["containers"]
    (mounted,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/input"]
    assert mounted["readOnly"] is True
    assert TRAIN.config(train(volume="drafters"), ()).store.path == "/input/states/k25"
    assert TRAIN.config(train(), ()).store.path == "/data/states/k25"


def test_what_weights_depend_on_starts_nothing_anew_and_where_they_are_computed_does() -> None:
    def hash_of(**parts: Any) -> str:
        return TRAIN.workers_hash(train(**parts).spec)

    before = hash_of()
    assert hash_of(backoffLimit=9, activeDeadline="1h") == before
    for change in ({"nodes": 2}, {"gpusPerNode": 4}, {"checkpoint": {"keep": 3}}, {"restart": "2"}):
        assert hash_of(**change) != before
    assert hash_of(training={"pod": {"priorityClassName": "low"}}) != before


@pytest.mark.parametrize("name", ["k25-10k", "k" * 200])
def test_the_name_of_a_rank_is_a_host_name(name: str) -> None:
    of_job = child_name(RunKey(DRAFTERTRAIN, "team", name), Role.WORKER, 0, 99)
    assert len(of_job) <= NAME_LIMIT
    assert len(f"{of_job}-63") <= 63
