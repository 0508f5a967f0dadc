"""Why no node has room for a pod with GPUs, in plain words beside the scheduler's. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from draftmill_operator.render.hardware import GPU, Hardware

PRODUCT: Final = "nvidia.com/gpu.product"
_ENDED: Final = {"Succeeded", "Failed"}
_Object = dict[str, Any]


def room_for(wanted: Hardware, nodes: Iterable[_Object], pods: Iterable[_Object]) -> str:
    """How many nodes are of the right kind, and how many of them have enough free GPUs: one sentence.

    `pods` are those of the whole cluster; what they ask for is not free.
    """
    matching = [node for node in nodes if _matches(node, wanted)]
    taken = _taken(pods)
    if not matching:
        return "no node matches gpuProducts" if wanted.gpu_products else "no node has GPUs"
    free = [_gpus(node) - taken[node["metadata"]["name"]] for node in matching]
    fitting = sum(count >= wanted.gpus for count in free)
    kind = "match gpuProducts" if wanted.gpu_products else "have GPUs"
    found = f"{len(matching)} {'node' if len(matching) == 1 else 'nodes'} {kind}"
    if len(matching) == 1:
        found = found.replace("match ", "matches ").replace("have ", "has ")
    most = f", the most on one is {max(free)}" if free and not fitting else ""
    return f"{found}, {fitting} {'has' if fitting == 1 else 'have'} {wanted.gpus} free{most}"


def _matches(node: _Object, wanted: Hardware) -> bool:
    if not _gpus(node):
        return False
    labels = node["metadata"].get("labels") or {}
    return not wanted.gpu_products or labels.get(PRODUCT) in wanted.gpu_products


def _gpus(node: _Object) -> int:
    return int(((node.get("status") or {}).get("allocatable") or {}).get(GPU, "0"))


def _taken(pods: Iterable[_Object]) -> Counter[str]:
    """GPUs that pods hold, by node. Extended resources have equal requests and limits."""
    taken: Counter[str] = Counter()
    for pod in pods:
        spec = pod["spec"]
        if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        together = sum(map(_limit, spec.get("containers") or []))
        first = max(map(_limit, spec.get("initContainers") or []), default=0)
        taken[spec["nodeName"]] += max(together, first)
    return taken


def _limit(container: _Object) -> int:
    return int(((container.get("resources") or {}).get("limits") or {}).get(GPU, "0"))
