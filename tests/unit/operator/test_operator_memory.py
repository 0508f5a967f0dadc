"""What the cache of a large cluster costs, against the memory that the chart gives the operator."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import yaml

from draftmill_operator.observe.store import Kind, Store
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.render.jobs import JobRequest, render_job
from draftmill_operator.run import Role
from draftmill_operator.settings import ImagePullPolicy
from tests.unit.operator.builders import IDENTITY, SYNTH, run

VALUES = Path(__file__).parents[3] / "charts" / "draftmill" / "values.yaml"
OBJECTS = 10_000
MEASURED = 2_000
MIB = 1 << 20


def pod() -> dict[str, Any]:
    """A worker's pod as the API server has it, with the bookkeeping that nobody here reads."""
    defaults = FrozenDefaults(
        job_image="jobs:1", trainer_image="jobs-train:1", image_pull_policy=ImagePullPolicy.IF_NOT_PRESENT
    )
    template = render_job(IDENTITY, SYNTH.workload(run()), defaults, JobRequest(Role.WORKER, "c0ffee", 6, 1))[
        "spec"
    ]["template"]
    fields: dict[str, Any] = {"f:metadata": {f"f:label-{number}": {} for number in range(60)}}
    managed = [{"manager": name, "fieldsV1": fields} for name in ("kube-controller-manager", "kubelet")]
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "PodScheduled")]
    metadata = template["metadata"] | {"namespace": "team", "managedFields": managed}
    whole: dict[str, Any] = template | {
        "metadata": metadata,
        "status": {"phase": "Running", "conditions": conditions},
    }
    return whole


def test_ten_thousand_pods_fit_into_half_of_the_operators_memory() -> None:
    limit = yaml.safe_load(VALUES.read_text())["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    text, store = json.dumps(pod()), Store()
    tracemalloc.start()
    try:
        for number in range(MEASURED):
            raw = json.loads(text)
            raw["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-{number}", "resourceVersion": "1"}
            store.put(Kind.POD, raw)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(list(store.all(Kind.POD))) == MEASURED
    assert held * OBJECTS / MEASURED / MIB < int(limit.removesuffix("Mi")) / 2
