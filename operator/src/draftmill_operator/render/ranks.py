"""Ranks: a worker of several pods that start, go on and end together, as one Indexed Job.

The environment is that of Kubeflow's torch plugin, so that a trainer finds the others as torchrun does: the
first pod by its host name behind a headless Service, and its own number from the Job controller.
"""

from __future__ import annotations

from typing import Final

from draftmill_api import names as api_names
from draftmill_operator.render.failures import fails_for_good
from draftmill_operator.render.hardware import SHARED_MEMORY_MOUNT
from draftmill_operator.render.metadata import Manifest, metadata, sealed, selector
from draftmill_operator.render.names import child_name
from draftmill_operator.render.workload import Ranks
from draftmill_operator.run import Role, RunIdentity

RENDEZVOUS_PORT: Final = 29500


def ranks_service(run: RunIdentity) -> Manifest:
    """The headless Service by which ranks find the first of them, before that is ready too."""
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(run, Role.WORKER, service_name(run)),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector(run, Role.WORKER),
                "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT, "targetPort": RENDEZVOUS_PORT}],
            },
        }
    )


def service_name(run: RunIdentity) -> str:
    """Name of the ranks' Service."""
    return child_name(run.key, Role.WORKER)


def ranks_job_spec(ranks: Ranks) -> Manifest:
    """How the Job controller treats ended ranks: one that fails ends the Job, and all others with it."""
    return {
        "completionMode": "Indexed",
        "completions": ranks.nodes,
        "parallelism": ranks.nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [fails_for_good()]},
    }


def with_ranks(template: Manifest, run: RunIdentity, ranks: Ranks) -> Manifest:
    """The pod template with the hardware of a rank, and a host name that the others know."""
    pod, hardware = template["spec"], ranks.hardware
    (container,) = pod["containers"]
    container = container | {
        "resources": container["resources"] | hardware.resources(),
        "volumeMounts": [*container["volumeMounts"], SHARED_MEMORY_MOUNT],
    }
    place = hardware.pod()
    if "affinity" in pod:
        place["affinity"] = pod["affinity"] | place.get("affinity", {})
    changed = {
        "subdomain": service_name(run),
        "containers": [container],
        "volumes": [*pod["volumes"], hardware.volume()],
    }
    return template | {"spec": pod | changed | place}


def ranks_environment(run: RunIdentity, ranks: Ranks, job_name: str) -> list[Manifest]:
    """What torchrun reads."""
    return [
        {"name": "PET_NNODES", "value": str(ranks.nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(ranks.processes)},
        {
            "name": "PET_NODE_RANK",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{api_names.ANNOTATION_RANK}']"}},
        },
        {"name": "PET_MASTER_ADDR", "value": f"{job_name}-0.{service_name(run)}"},
        {"name": "PET_MASTER_PORT", "value": str(RENDEZVOUS_PORT)},
    ]
