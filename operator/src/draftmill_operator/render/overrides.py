"""Pod overrides: the chart's podDefaults under the run's own, and both over what is rendered."""

from __future__ import annotations

from typing import Final

from draftmill_api.v1alpha1.pod import PodOverrides
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.workload import Workload

_LIST_KEYS: Final = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_APPENDED: Final = ("tolerations", "envFrom")
_MERGED: Final = ("nodeSelector", "annotations", "labels", "securityContext")
_PLACING: Final = (
    "node_selector",
    "tolerations",
    "affinity",
    "priority_class_name",
    "scheduler_name",
    "runtime_class_name",
    "resources",
)


def job_overrides(work: Workload, defaults: FrozenDefaults) -> PodOverrides:
    """The overrides of a job's pod that is no rank.

    Where torch computes, the trainers' defaults bring what it needs; whatever places a rank or gives it
    resources is left out, be it the chart's or the run's.
    """
    under = merge(defaults.job, _without_place(defaults.trainer)) if work.has_torch else defaults.job
    return merge(under, _without_place(work.pod) if work.ranks is not None and work.pod else work.pod)


def _without_place(pod: PodOverrides) -> PodOverrides:
    return pod.model_copy(update=dict.fromkeys(_PLACING))


def merge(defaults: PodOverrides, run: PodOverrides | None) -> PodOverrides:
    """The run's overrides over the defaults.

    Maps merge by key; env, volumes and imagePullSecrets by name, volumeMounts by mountPath; tolerations
    and envFrom append; everything else the run replaces.
    """
    under, over = defaults.to_json(), run.to_json() if run is not None else {}
    merged = under | over
    for field in _MERGED:
        if field in under and field in over:
            merged[field] = under[field] | over[field]
    for field, key in _LIST_KEYS.items():
        if field in under and field in over:
            merged[field] = merge_by(key, under[field], over[field])
    for field in _APPENDED:
        if field in under and field in over:
            merged[field] = _append(under[field], over[field])
    if "resources" in under and "resources" in over:
        merged["resources"] = merge_resources(under["resources"], over["resources"])
    return PodOverrides.model_validate(merged)


def merge_by(key: str, under: list[Manifest], over: list[Manifest]) -> list[Manifest]:
    """Two lists of named items as one: the same name replaces in place, a new one is appended."""
    replacing = {item[key]: item for item in over}
    kept = [replacing.pop(item[key], item) for item in under]
    return kept + list(replacing.values())


def merge_resources(under: Manifest, over: Manifest) -> Manifest:
    """Resource requirements with requests and limits merged by resource name."""
    merged = under | over
    for field in ("requests", "limits"):
        if field in under and field in over:
            merged[field] = under[field] | over[field]
    return merged


def apply_overrides(template: Manifest, overrides: PodOverrides) -> Manifest:
    """The pod template with the overrides in its pod, its metadata and its one container."""
    template = override_pod(template, overrides)
    (container,) = template["spec"]["containers"]
    return template | {"spec": template["spec"] | {"containers": [override_container(container, overrides)]}}


def override_pod(template: Manifest, overrides: PodOverrides) -> Manifest:
    """The pod template with the overrides of the pod as a whole.

    Labels and annotations of Draftmill itself are not overridden.
    """
    over = overrides.to_json()
    metadata, spec = dict(template["metadata"]), dict(template["spec"])
    metadata["labels"] = over.get("labels", {}) | metadata["labels"]
    metadata["annotations"] = over.get("annotations", {}) | metadata["annotations"]
    for field in ("priorityClassName", "serviceAccountName", "schedulerName", "runtimeClassName"):
        if field in over:
            spec[field] = over[field]
    if "nodeSelector" in over:
        spec["nodeSelector"] = over["nodeSelector"]
    if "tolerations" in over:
        spec["tolerations"] = _append(spec.get("tolerations", []), over["tolerations"])
    if "affinity" in over:
        spec["affinity"] = _combine_affinity(over["affinity"], spec.get("affinity", {}))
    for field in ("volumes", "imagePullSecrets"):
        if field in over:
            spec[field] = merge_by(_LIST_KEYS[field], spec.get(field, []), over[field])
    return {"metadata": metadata, "spec": spec}


def override_container(container: Manifest, overrides: PodOverrides) -> Manifest:
    """The container with the overrides of a container."""
    over, result = overrides.to_json(), dict(container)
    for field in ("env", "volumeMounts"):
        if field in over:
            result[field] = merge_by(_LIST_KEYS[field], container.get(field, []), over[field])
    if "envFrom" in over:
        result["envFrom"] = over["envFrom"]
    if "securityContext" in over:
        result["securityContext"] = container.get("securityContext", {}) | over["securityContext"]
    if "resources" in over:
        result["resources"] = merge_resources(container.get("resources", {}), over["resources"])
    return result


def _append(under: list[Manifest], over: list[Manifest]) -> list[Manifest]:
    return under + [item for item in over if item not in under]


def _combine_affinity(given: Manifest, computed: Manifest) -> Manifest:
    """Both have to hold.

    The computed expressions go into each of the given node terms, which are alternatives; terms about other
    pods all have to hold anyway.
    """
    combined = dict(given)
    beside = computed.get("podAffinity", {}).get(_REQUIRED, [])
    if beside:
        pods = given.get("podAffinity", {})
        combined["podAffinity"] = pods | {_REQUIRED: pods.get(_REQUIRED, []) + beside}
    terms = computed.get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms", [])
    if terms:
        (computed_term,) = terms
        nodes = given.get("nodeAffinity", {})
        given_terms = nodes.get(_REQUIRED, {}).get("nodeSelectorTerms", []) or [{}]
        narrowed = [
            term | {"matchExpressions": term.get("matchExpressions", []) + computed_term["matchExpressions"]}
            for term in given_terms
        ]
        combined["nodeAffinity"] = nodes | {_REQUIRED: {"nodeSelectorTerms": narrowed}}
    return combined
