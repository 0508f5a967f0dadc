"""The children of an ExtractRun against reviewed files; `UPDATE_GOLDEN=1 pytest ...` writes them anew."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from draftmill_api.v1alpha1.extractrun import ExtractRunSpec, ExtractRunStatus
from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_api.v1alpha1.shared import Volume
from draftmill_operator.kinds.base import BESIDE
from draftmill_operator.kinds.extractrun import ExtractRunKind
from draftmill_operator.kinds.synthrun import SynthRunKind
from draftmill_operator.render.config import config_text, render_config
from draftmill_operator.render.hidden_states import staging_bytes
from draftmill_operator.render.jobs import JobRequest, render_job
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.run import EXTRACTRUN, Role, Run, RunIdentity, RunKey
from tests.support.extractruns import extract_plan, smallest_extract_run
from tests.support.played import finish_message
from tests.unit.operator.builders import as_run, planned, run
from tests.unit.operator.test_operator_rendering import DEFAULTS, GOLDEN, KIMI

EXTRACT = ExtractRunKind()
IDENTITY = RunIdentity(RunKey(EXTRACTRUN, "team", "k25-10k"), uid="0b1f-extract")
GPU_SERVER: dict[str, Any] = {
    "engine": "VLLM",
    "image": "vllm/vllm-openai:v0.33.0",
    "gpus": 8,
    "gpuProducts": ["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"],
    "memFractionStatic": "0.88",
    "extraResources": {"rdma/ib": "8"},
    "resourceClaims": [{"name": "fabric", "resourceClaimTemplateName": "imex"}],
    "pod": {"priorityClassName": "gpu", "nodeSelector": {"pool": "gpu"}},
}
CPU_SERVER: dict[str, Any] = {
    "engine": "VLLM",
    "image": "localhost/server:1",
    "gpus": 0,
    "startupTimeout": "5m",
    "sharedMemory": "1Gi",
    "extraArgs": ["--max-num-seqs=32"],
    "pod": {
        "env": [{"name": "PYTHONPATH", "value": "/opt/more"}],
        "volumes": [{"name": "env", "persistentVolumeClaim": {"claimName": "server-env"}}],
        "volumeMounts": [{"name": "env", "mountPath": "/opt/env", "readOnly": True}],
    },
}


def extract(volume: str = "eagle3", **parts: Any) -> Run[ExtractRunSpec, ExtractRunStatus]:
    """A planned run that is bound to a Complete SynthRun; `volume` is the claim of its own data."""
    finished = run(planned(), **KIMI)
    published = SynthRunKind().published(as_run(finished.spec, complete()))
    assert published is not None
    storage = finished.spec.storage.model_copy(update={"data": claim(volume)})
    raw = smallest_extract_run("any")["spec"] | {"storage": storage.to_json()} | parts
    spec = ExtractRunSpec.model_validate({key: value for key, value in raw.items() if value is not None})
    status = ExtractRunStatus(input=published, plan=extract_plan(10_000, longest=16_384))
    return Run(IDENTITY, 1, being_deleted=False, spec=spec, status=status)


def complete() -> Any:
    """The status of a Complete SynthRun, whose records are on claim eagle3."""
    finished = SynthRunKind().finished(run(planned(), **KIMI), finish_message(100))
    assert finished is not None
    output = finished.output.model_copy(update={"volume": claim("eagle3")})
    return planned().model_copy(update={"output": output})


def claim(name: str) -> Volume:
    return Volume.model_validate({"persistentVolumeClaim": {"claimName": name}})


def job(role: Role, of: Run[ExtractRunSpec, ExtractRunStatus], **request: Any) -> Manifest:
    attempt = 2 if role is Role.WORKER else 0
    return render_job(
        IDENTITY, EXTRACT.workload(of), DEFAULTS, JobRequest(role, "c0ffee", 6, attempt, **request)
    )


def test_torch_is_there_where_the_worker_computes_itself_and_only_there() -> None:
    trainer = PodOverrides(env=[{"name": "PYTHONPATH", "value": "/opt/torch"}], scheduler_name="gang")
    defaults = DEFAULTS.model_copy(update={"trainer": trainer})
    transformers, vllm = extract(server=None, backend="Transformers"), extract(server=GPU_SERVER)
    for role in (Role.PLAN, Role.WORKER, Role.FINISH):
        for of, image, paths in (
            (transformers, defaults.trainer_image, ["/opt/torch"]),
            (vllm, defaults.job_image, []),
        ):
            request = JobRequest(role, "c0ffee", 6, attempt=2 if role is Role.WORKER else 0)
            pod = pod_of(render_job(IDENTITY, EXTRACT.workload(of), defaults, request))
            (container,) = pod["containers"]
            found = [item["value"] for item in container["env"] if item["name"] == "PYTHONPATH"]
            assert (container["image"], found) == (image, paths)
            assert "schedulerName" not in pod


def config(of: Run[ExtractRunSpec, ExtractRunStatus]) -> Manifest:
    return render_config(IDENTITY, config_text(EXTRACT.config(of, (BESIDE,))))


CHILDREN: dict[str, Callable[[], Manifest]] = {
    "extract-config": lambda: config(extract(server=GPU_SERVER, layers={"ids": [2, 15, 27]})),
    "extract-plan": lambda: job(Role.PLAN, extract(volume="states", server=GPU_SERVER)),
    "extract-worker-gpu": lambda: job(
        Role.WORKER,
        extract(
            volume="states",
            server=GPU_SERVER,
            workers=2,
            extraction={"pod": {"labels": {"team": "a"}, "nodeSelector": {"pool": "cpu"}}},
        ),
        worker=1,
        on_one_node=True,
    ),
    "extract-worker-cpu": lambda: job(Role.WORKER, extract(server=CPU_SERVER)),
    "extract-worker-transformers": lambda: job(
        Role.WORKER, extract(server=None, backend="Transformers", extraction={"gpus": 1})
    ),
}


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_of_an_extract_run_is_rendered_as_reviewed(name: str) -> None:
    child = json.loads(json.dumps(CHILDREN[name]()))  # without YAML's references to equal parts
    path, text = GOLDEN / f"{name}.yaml", yaml.safe_dump(child, sort_keys=False, width=100)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert yaml.safe_load(text) == yaml.safe_load(path.read_text())


def test_a_drafter_whose_layers_are_taken_is_read_where_the_models_are_mounted() -> None:
    of = extract(server=GPU_SERVER, layers={"fromDrafter": {"path": "drafters/k25-eagle3"}})
    layers = EXTRACT.config(of, (BESIDE,)).layers
    assert layers.to_json() == {"fromDrafter": "/models/drafters/k25-eagle3"}
    for role in (Role.PLAN, Role.WORKER):
        (container,) = pod_of(job(role, of))["containers"]
        assert "/models" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_layers_and_rows_that_a_run_does_not_choose_are_the_default_ones() -> None:
    told = EXTRACT.config(extract(server=GPU_SERVER), (BESIDE,)).to_json()
    assert told["layers"] == {"default": True}
    assert told["rowFilter"] == ["ok", "truncated", "truncated_reasoning"]


def pod_of(manifest: Manifest) -> Any:
    return manifest["spec"]["template"]["spec"]


def test_the_server_takes_rows_one_token_longer_than_the_longest_and_writes_the_planned_layers() -> None:
    (server,) = pod_of(job(Role.WORKER, extract(server=GPU_SERVER)))["initContainers"]
    command = server["command"]
    assert command[command.index("--max-model-len") + 1] == "16385"
    drafting = json.loads(command[command.index("--speculative-config") + 1])
    assert drafting["draft_model_config"]["hf_config"] == {
        "eagle_aux_hidden_state_layer_ids": [2, 15, 27, 30]
    }
    assert "--no-enable-prefix-caching" in command


def test_what_makes_the_states_cannot_be_taken_back_by_further_arguments() -> None:
    """Of two equal flags vLLM takes the later one, and states of other layers look like those of the plan."""
    given = ["--speculative-config={}", "--kv-transfer-config={}", "--enable-prefix-caching"]
    (server,) = pod_of(job(Role.WORKER, extract(server={**GPU_SERVER, "extraArgs": given})))["initContainers"]
    command = server["command"]
    last_given = max(map(command.index, given))
    for ours in ("--speculative-config", "--kv-transfer-config", "--no-enable-prefix-caching"):
        assert command.index(ours) > last_given


def test_the_stock_connector_serves_on_gpus_and_our_own_on_cpu() -> None:
    def transfer(server: dict[str, Any]) -> Any:
        command = pod_of(job(Role.WORKER, extract(server=server)))["initContainers"][-1]["command"]
        return json.loads(command[command.index("--kv-transfer-config") + 1])

    assert transfer(GPU_SERVER)["kv_connector"] == "ExampleHiddenStatesConnector"
    assert transfer(CPU_SERVER)["kv_connector_module_path"] == "draftmill_cpu_connector"


def test_the_connector_is_found_before_what_the_run_has_on_its_module_path() -> None:
    installer, server = pod_of(job(Role.WORKER, extract(server=CPU_SERVER)))["initContainers"]
    assert installer["args"] == ["install-connector", "--to", "/connector"]
    assert "restartPolicy" not in installer
    assert {"name": "PYTHONPATH", "value": "/connector:/opt/more"} in server["env"]


def test_a_server_on_cpus_compiles_nothing_unless_the_run_says_so() -> None:
    def server(given: dict[str, Any]) -> Any:
        return pod_of(job(Role.WORKER, extract(server=given)))["initContainers"][-1]

    def compiling(given: dict[str, Any]) -> Any:
        return [item["value"] for item in server(given)["env"] if item["name"] == "TORCHDYNAMO_DISABLE"]

    plain = {**CPU_SERVER, "extraArgs": ["--max-num-seqs=4"]}
    own = {**CPU_SERVER, "pod": {"env": [{"name": "TORCHDYNAMO_DISABLE", "value": "0"}]}}
    command = server(plain)["command"]
    assert command[command.index("--enforce-eager") + 1] == "--max-num-seqs=4", "what is given counts"
    assert (compiling(plain), compiling(own), compiling(GPU_SERVER)) == (["1"], ["0"], [])
    assert "--enforce-eager" not in server(GPU_SERVER)["command"]


def test_a_worker_with_a_server_is_restarted_in_its_pod_and_no_policy_forbids_it() -> None:
    manifest = job(Role.WORKER, extract(server=GPU_SERVER))
    assert pod_of(manifest)["restartPolicy"] == "OnFailure"
    assert "podFailurePolicy" not in manifest["spec"]


def test_the_server_runs_as_its_images_user_and_the_worker_under_the_restricted_profile() -> None:
    pod = pod_of(job(Role.WORKER, extract(server=GPU_SERVER)))
    (server,), (worker,) = pod["initContainers"], pod["containers"]
    assert pod["securityContext"] == {"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"}
    assert "securityContext" not in server
    assert worker["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_the_pod_is_placed_where_its_server_has_to_be() -> None:
    overrides = {"labels": {"team": "a"}, "nodeSelector": {"pool": "cpu"}, "priorityClassName": "low"}
    manifest = job(Role.WORKER, extract(server=GPU_SERVER, extraction={"pod": overrides}))
    assert pod_of(manifest)["nodeSelector"] == {"pool": "gpu"}
    assert pod_of(manifest)["priorityClassName"] == "gpu"
    assert manifest["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    plan = job(Role.PLAN, extract(server=GPU_SERVER, extraction={"pod": overrides}))
    assert pod_of(plan)["nodeSelector"] == {"pool": "cpu"}


def test_container_names_ports_and_volumes_of_the_mixed_pod_do_not_collide() -> None:
    for server in (GPU_SERVER, CPU_SERVER):
        pod = pod_of(job(Role.WORKER, extract(volume="states", server=server)))
        containers = [*pod["initContainers"], *pod["containers"]]
        ports = [port["name"] for container in containers for port in container.get("ports", [])]
        for names in (
            [each["name"] for each in containers],
            ports,
            [each["name"] for each in pod["volumes"]],
        ):
            assert len(set(names)) == len(names)
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for each in containers for mount in each["volumeMounts"]} <= set(volumes)


def test_an_input_on_the_runs_own_claim_is_mounted_once() -> None:
    def mounts(volume: str) -> list[str]:
        (worker,) = pod_of(job(Role.WORKER, extract(volume=volume, server=GPU_SERVER)))["containers"]
        return [mount["mountPath"] for mount in worker["volumeMounts"]]

    assert "/input" not in mounts("eagle3")
    assert "/input" in mounts("states")


def test_the_staging_folder_holds_what_is_in_flight_and_the_two_rows_of_a_proof() -> None:
    plan = extract_plan(10, longest=100_000)
    assert staging_bytes(plan, 1_000) > 201_000 * 4 * 576 * 4
    assert staging_bytes(plan, 400_000) > 600_000 * 4 * 576 * 4


def test_the_chart_can_give_servers_what_job_pods_do_not_get() -> None:
    pod = pod_of(job(Role.WORKER, extract(server=GPU_SERVER)))
    assert {"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"} in pod["initContainers"][0]["env"]
    assert all(item["name"] != "SSL_CERT_FILE" for item in pod["containers"][0]["env"])


def test_changing_the_server_starts_the_workers_anew_and_changing_a_live_field_does_not() -> None:
    def hash_of(**parts: Any) -> str:
        return EXTRACT.workers_hash(extract(**parts).spec)

    before = hash_of(server=GPU_SERVER)
    assert hash_of(server=GPU_SERVER | {"image": "vllm/vllm-openai:v0.34.0"}) != before
    assert hash_of(server=GPU_SERVER, workers=2) != before
    assert hash_of(server=GPU_SERVER, inFlightTokens=1000, retries=9, activeDeadline="1h") == before


def test_the_plan_of_kimi_k25_is_told_with_828_gb_of_states_and_all_else_apart() -> None:
    sizes = {"tokens": 14_440_000, "state_bytes": 828_047_360_000, "other_bytes": 284_575_168}
    status = ExtractRunStatus(plan=extract_plan(10_000).model_copy(update=sizes))
    assert EXTRACT.summary(status) == (
        "10000 rows of 14440000 tokens: states 828 GB; ids, masks and index 285 MB"
    )
