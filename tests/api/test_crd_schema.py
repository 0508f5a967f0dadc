"""The generated CRDs as the API server takes and serves them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kubernetes import client

from draftmill_api import names
from draftmill_api.crd import Schema, root_schema
from draftmill_api.v1alpha1.extractrun import ExtractRunSpec, Layers
from draftmill_api.v1alpha1.resources import DRAFTER_TRAIN, EXTRACT_RUN, SYNTH_RUN, Resource
from draftmill_dev import binaries
from draftmill_dev.cluster import ControlPlane
from tests.support import kube
from tests.support.draftertrains import smallest_drafter_train
from tests.support.extractruns import smallest_extract_run
from tests.support.synthruns import Manifest, smallest_synth_run

pytestmark = pytest.mark.api

ADDRESS = ("draftmill.dev", "v1alpha1", "default", "synthruns")
CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))
SMALLEST = (
    (SYNTH_RUN, smallest_synth_run),
    (EXTRACT_RUN, smallest_extract_run),
    (DRAFTER_TRAIN, smallest_drafter_train),
)
VOLUMES: Manifest = {
    "persistentVolumeClaim": {"claimName": "x"},
    "hostPath": {"path": "/mnt/x"},
    "nfs": {"server": "x", "path": "/x"},
}
MODEL_SOURCES = {"path", "huggingFace"}


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane, crds: None) -> kube.Kube:
    return kube.connect(control_plane.kubeconfig, "default")


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_the_committed_crd_is_accepted_as_it_is(path: Path, api: kube.Kube) -> None:
    definition = yaml.safe_load(path.read_text())
    definitions: Any = client.ApiextensionsV1Api(api.api)
    applied = definitions.patch_custom_resource_definition(
        definition["metadata"]["name"],
        definition,
        field_manager="test",
        field_validation="Strict",
        force=True,
        dry_run="All",
        _content_type="application/apply-patch+yaml",
    )
    assert {each.type: each.status for each in applied.status.conditions}["Established"] == "True"


@pytest.mark.parametrize(
    "chosen",
    [{"persistentVolumeClaim", "path"}, {"hostPath", "huggingFace"}, {"nfs", "path"}],
    ids=lambda chosen: "-".join(sorted(chosen)),
)
@pytest.mark.parametrize(("resource", "smallest"), SMALLEST, ids=lambda value: getattr(value, "kind", ""))
def test_every_status_field_survives_pruning(
    resource: Resource, smallest: Callable[[str], Manifest], chosen: set[str], api: kube.Kube
) -> None:
    manifest = smallest("full")
    written = example(root_schema(resource)["properties"]["status"], chosen)
    runs = api.of(resource.plural)
    name = runs.create_run(manifest)
    api.objects.patch_namespaced_custom_object_status(
        names.GROUP,
        names.VERSION,
        api.namespace,
        resource.plural,
        name,
        {"status": written},
        field_validation="Strict",
    )
    read = runs.status(name)
    assert read == written
    assert resource.model.model_validate(manifest | {"status": read}).to_json()["status"] == written
    runs.delete_run(name)


def test_defaults_are_filled_in_by_the_api_server(api: kube.Kube) -> None:
    created = api.objects.create_namespaced_custom_object(
        *ADDRESS, smallest_synth_run("defaulted"), dry_run="All"
    )
    spec = created["spec"]
    assert spec["generation"] == {
        "api": "Auto",
        "concurrency": 128,
        "shortPromptTokens": 512,
        "connectTimeout": "10s",
        "stallTimeout": "600s",
        "outageTimeout": "1h",
        "retries": 3,
        "errorPolicy": {"warnPercent": 2, "pausePercent": 5, "window": 500},
        "onPause": {"freeServersAfter": "15m"},
        "workers": 1,
    }
    assert (spec["suspend"], spec["backoffLimit"]) == (False, 6)
    assert spec["sampling"] == {
        "temperature": "1.0",
        "topP": "1.0",
        "maxCompletionTokens": 8192,
        "samplesPerPrompt": 1,
    }
    assert spec["storage"]["runAs"] == {"user": 65532, "group": 65532}
    assert spec["server"]["replicas"] == 1
    assert spec["server"]["startupTimeout"] == "45m"
    assert spec["backoffLimit"] == 6
    assert "sampling" not in spec["datasets"][0]


def test_the_defaults_of_an_extract_run(api: kube.Kube) -> None:
    address = (names.GROUP, names.VERSION, api.namespace, EXTRACT_RUN.plural)
    manifest = smallest_extract_run("defaulted")
    spec = api.objects.create_namespaced_custom_object(*address, manifest, dry_run="All")["spec"]
    assert {name: spec[name] for name in ("backend", "dtype", "onLongRow", "shardSize", "workers")} == {
        "backend": "VLLM",
        "dtype": "BFloat16",
        "onLongRow": "Cut",
        "shardSize": "4Gi",
        "workers": 1,
    }
    assert (spec["inFlightTokens"], spec["retries"], spec["backoffLimit"]) == (65536, 3, 6)
    assert (spec["verify"], spec["extraction"]) == ({"teacherArgmaxSample": 8}, {"gpus": 0})
    # Whoever writes these two writes them whole: lists and choices would be merged with what was filled in.
    assert not {"layers", "rowFilter"} & spec.keys()
    read = ExtractRunSpec.model_validate(spec)
    assert read.layers == Layers(default=True)
    assert read.row_filter == ["ok", "truncated", "truncated_reasoning"]


@pytest.mark.parametrize(("resource", "smallest"), SMALLEST, ids=lambda value: getattr(value, "kind", ""))
def test_the_operators_types_read_what_the_api_server_defaults(
    resource: Resource, smallest: Callable[[str], Manifest], api: kube.Kube
) -> None:
    address = (names.GROUP, names.VERSION, api.namespace, resource.plural)
    manifest = smallest("defaulted")
    created = api.objects.create_namespaced_custom_object(*address, smallest("defaulted"), dry_run="All")
    as_served = resource.model.model_validate(created | {"metadata": manifest["metadata"]})
    assert as_served == resource.model.model_validate(manifest)


class Listed(NamedTuple):
    """What `kubectl get` prints of a run of a kind."""

    resource: Resource
    smallest: Callable[[str], Manifest]
    progress: Manifest
    columns: tuple[str, ...]
    further: tuple[str, ...]
    shown: set[str]

    @property
    def kind(self) -> str:
        return self.resource.kind


LISTED = (
    Listed(
        SYNTH_RUN,
        smallest_synth_run,
        {"done": 428, "total": 10000, "requestsPerSecond": "1.1"},
        ("NAME", "PHASE", "DONE", "TOTAL", "ERRORS", "REQ/S", "TOK/S", "AVG-TOK", "ETA", "AGE"),
        ("SERVERS", "MODEL", "OUTPUT", "REASON"),
        {"428", "10000", "1.1"},
    ),
    Listed(
        EXTRACT_RUN,
        smallest_extract_run,
        {
            "rows": 428,
            "total": 10000,
            "tokens": 618000,
            "size": "35.4GB",
            "tokensPerSecond": 900,
            "eta": "4h",
        },
        ("NAME", "PHASE", "ROWS", "TOTAL", "TOKENS", "SIZE", "TOK/S", "ETA", "AGE"),
        ("QUARANTINED", "SERVERS", "FROM", "REASON"),
        {"428", "10000", "618000", "35.4GB", "900", "4h"},
    ),
    Listed(
        DRAFTER_TRAIN,
        smallest_drafter_train,
        {"epoch": 2, "step": 428, "loss": "2.31", "acceptanceLength": "1.9", "tokensPerSecond": 900},
        ("NAME", "PHASE", "EPOCH", "STEP", "LOSS", "ACC-LEN", "TOK/S", "ETA", "AGE"),
        ("STEPS", "AGREEMENT", "BEST", "MEASURED", "SPEEDUP", "FROM", "REASON"),
        {"2", "428", "2.31", "1.9", "900"},
    ),
)


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.kind)
def test_kubectl_get_shows_progress(listed: Listed, control_plane: ControlPlane, api: kube.Kube) -> None:
    (short_name,) = listed.resource.short_names
    runs = api.of(listed.resource.plural)
    runs.create_run(listed.smallest("shown"))
    address = (names.GROUP, names.VERSION, api.namespace, listed.resource.plural, "shown")
    status = {"phase": "Running", "progress": listed.progress}
    api.objects.patch_namespaced_custom_object_status(*address, {"status": status})

    header, line = kubectl(control_plane, "get", short_name, "shown").splitlines()
    wide, _ = kubectl(control_plane, "get", short_name, "shown", "-o", "wide").splitlines()

    assert tuple(header.split()) == listed.columns
    assert tuple(wide.split()) == (*listed.columns, *listed.further)
    assert {"Running", *listed.shown} <= set(line.split())
    assert "shown" in kubectl(control_plane, "get", "draftmill", "-o", "name")
    runs.delete_run("shown")


def test_kubectl_explains_a_field_deep_inside(control_plane: ControlPlane, crds: None) -> None:
    explained = kubectl(control_plane, "explain", "synthrun.spec.generation.concurrency")
    assert "Most requests in flight at once" in explained


def kubectl(control_plane: ControlPlane, *arguments: str) -> str:
    command = [str(binaries.kube()), "kubectl", "--kubeconfig", str(control_plane.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def example(schema: Schema, chosen: set[str]) -> Any:
    """A value with every field set, and of those that exclude each other the chosen one."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return object_example(schema["properties"], chosen)
        case "array":
            return [example(schema["items"], chosen)]
        case "string":
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "x"
        case "integer":
            return 7
        case "boolean":
            return True
        case other:
            raise ValueError(f"no example for the type {other}")


def object_example(fields: Schema, chosen: set[str]) -> Manifest:
    if fields.keys() == VOLUMES.keys():
        return {name: volume for name, volume in VOLUMES.items() if name in chosen}
    left_out = MODEL_SOURCES - chosen if fields.keys() >= MODEL_SOURCES else set()
    return {name: example(child, chosen) for name, child in fields.items() if name not in left_out}
