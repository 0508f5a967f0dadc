"""The kinds of objects that the operator reads and writes, as parts of URLs."""

from __future__ import annotations

from typing import Final

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.resources import RESOURCES as RUNS
from draftmill_operator.kube.client import Resource
from draftmill_operator.observe.store import RUN_KINDS, Kind

RESOURCES: Final = {
    **{Kind(run.kind): Resource(api_names.API_VERSION, run.plural) for run in RUNS},
    Kind.JOB: Resource("batch/v1", "jobs"),
    Kind.DEPLOYMENT: Resource("apps/v1", "deployments"),
    Kind.SERVICE: Resource("v1", "services"),
    Kind.POD: Resource("v1", "pods"),
    Kind.CONFIG_MAP: Resource("v1", "configmaps"),
}
EVENTS: Final = Resource("v1", "events")
CLAIMS: Final = Resource("v1", "persistentvolumeclaims")
NODES: Final = Resource("v1", "nodes")
LEASES: Final = Resource("coordination.k8s.io/v1", "leases")


def selector_of(kind: Kind) -> str:
    """Only children carry the run's label, and nothing else is listed or watched."""
    return "" if kind in RUN_KINDS else api_names.LABEL_RUN
