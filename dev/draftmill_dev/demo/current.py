"""The demo on a cluster that the person has already: the kubeconfig's current context."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

from draftmill_dev import console, model, release, venvs, volumes
from draftmill_dev.demo import run
from draftmill_dev.errors import DevError
from draftmill_dev.images import JOBS, OPERATOR
from draftmill_dev.kubectl import Kubectl, Manifest

_NAMESPACE = "draftmill-demo"
_SERVER = "vllm-cpu"
_SIZES = {volumes.MODELS: "2Gi", volumes.DATA: "2Gi"}
_FILL = "fill-volumes"
_SAMPLES = "show-samples"
_JOB_WITHIN = "15m"  # the image of the model server is large
_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": volumes.JOB_USER,
    "runAsGroup": volumes.JOB_USER,
    "fsGroup": volumes.JOB_USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def main(image_prefix: str, storage_class: str) -> None:
    """Installs Draftmill into the current context and shows a run there.

    Args:
        image_prefix: Registry and path that the cluster pulls draftmill-operator, -jobs and -vllm-cpu from.
        storage_class: Class of the two volumes.

    Raises:
        DevError: A step failed.
    """
    kubectl = Kubectl(_program("kubectl"), _program("helm"), None, _NAMESPACE)
    context = kubectl.run("config", "current-context").strip()
    console.say(f"Cluster: the current context, {context}; namespaces {release.NAMESPACE} and {_NAMESPACE}")
    images = {name: f"{image_prefix.rstrip('/')}/draftmill-{name}" for name in (OPERATOR, JOBS, _SERVER)}
    with console.step(f"helm upgrade --install {release.NAME} charts/draftmill"):
        release.install(kubectl, _values(images))
    with console.step(f"Volumes of the class {storage_class}"):
        kubectl.apply([_namespace()])
        run.clear(kubectl)
        kubectl.apply([_claim(name, size, storage_class) for name, size in _SIZES.items()])
    with console.step("Model and prompts onto them"):
        _run_job(kubectl, _fill_job(_tagged(images[_SERVER])))
    whole = manifest(_tagged(images[_SERVER]))
    last_line = run.start_and_show(kubectl, whole, lambda: _samples(kubectl, images[JOBS]))
    console.say(f"""
The answers lie on the claim {volumes.DATA} in the namespace {_NAMESPACE}, in the folder {run.OUTPUT}.

Keep looking:
    kubectl --namespace {_NAMESPACE} describe synthrun {run.RUN.name}
    kubectl explain synthrun.spec

Remove it all, answers included:
    kubectl delete namespace {_NAMESPACE}
    helm uninstall --namespace {release.NAMESPACE} {release.NAME}
""")
    print(last_line, flush=True)


def manifest(server_image: str) -> str:
    """The example, with a model server's image that the cluster can pull."""
    return run.EXAMPLE.read_text().replace("localhost/draftmill-server:demo", server_image)


def version() -> str:
    """The project's version, which is the tag of its published images."""
    project = tomllib.loads((venvs.REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise DevError(f"{name} is not on PATH; a demo on your own cluster uses yours.")
    return Path(found)


def _tagged(repository: str) -> str:
    return f"{repository}:{version()}"


def _values(images: dict[str, str]) -> dict[str, Any]:
    return {
        "images": {
            "operator": {"repository": images[OPERATOR], "tag": version()},
            "job": {"repository": images[JOBS], "tag": version()},
        },
        "podDefaults": {"server": release.cpu_server()},
    }


def _namespace() -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}


def _claim(name: str, size: str, storage_class: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage_class,
        },
    }


def _fill_job(server_image: str) -> Manifest:
    fill = (
        f"set -e; cp -r /opt/demo/models/{model.NAME} /models/; mkdir -p /data/{run.PROMPTS}; "
        f"cp /opt/demo/prompts/*.jsonl /data/{run.PROMPTS}/; rm -rf /data/{run.OUTPUT}"
    )
    return _job(
        _FILL, server_image, {"command": ["sh", "-c", fill]}, {volumes.MODELS: False, volumes.DATA: False}
    )


def _samples(kubectl: Kubectl, jobs_image: str) -> str:
    arguments = ["sample", f"/data/{run.OUTPUT}", "--count", "2"]
    return _run_job(kubectl, _job(_SAMPLES, _tagged(jobs_image), {"args": arguments}, {volumes.DATA: True}))


def _run_job(kubectl: Kubectl, job: Manifest) -> str:
    """Runs a job to its end and returns what it printed; an earlier one of its name is replaced."""
    name = job["metadata"]["name"]
    kubectl.run("delete", "job", name, "--ignore-not-found", "--cascade", "foreground")
    kubectl.apply([job])
    try:
        kubectl.run("wait", "--for", "condition=Complete", "--timeout", _JOB_WITHIN, f"job/{name}")
    except DevError as error:
        pods = kubectl.run("describe", "pods", "--selector", f"job-name={name}")
        raise DevError(f"{error}\n{pods[-2000:]}") from error
    return kubectl.run("logs", f"job/{name}")


def _job(name: str, image: str, container: Manifest, claims: dict[str, bool]) -> Manifest:
    """A job of one container; `claims` are mounted at their own names, read-only where true."""
    mounts = [
        {"name": claim, "mountPath": f"/{claim}", "readOnly": read_only}
        for claim, read_only in claims.items()
    ]
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    whole = {"name": name, "image": image, "volumeMounts": mounts, "securityContext": security, **container}
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": _POD_SECURITY,
        "containers": [whole],
        "volumes": [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
