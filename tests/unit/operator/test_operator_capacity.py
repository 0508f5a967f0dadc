from __future__ import annotations

from typing import Any

import pytest

from draftmill_api.v1alpha1.shared import Server
from draftmill_operator.capacity import room_for
from draftmill_operator.render.hardware import Hardware

BLACKWELL = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


def server(**fields: Any) -> Hardware:
    return Hardware.of(Server.model_validate({"engine": "SGLang", "image": "i", "gpus": 8, **fields}))


def node(name: str, gpus: int, product: str = BLACKWELL) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": product}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "64"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})},
    }


def pod(node: str, *gpus: int, first: int = 0, phase: str = "Running") -> dict[str, Any]:
    def container(count: int) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}} if count else {}

    spec = {"nodeName": node, "containers": [container(count) for count in gpus]}
    return {
        "spec": spec | ({"initContainers": [container(first)]} if first else {}),
        "status": {"phase": phase},
    }


NODES = [node("a", 8), node("b", 8), node("c", 8, "NVIDIA-B200"), node("d", 0)]


@pytest.mark.parametrize(
    ("wanted", "pods", "said"),
    [
        (server(gpuProducts=[BLACKWELL]), [], "2 nodes match gpuProducts, 2 have 8 free"),
        (
            server(gpuProducts=[BLACKWELL]),
            [pod("a", 8), pod("b", 2, 2)],
            "2 nodes match gpuProducts, 0 have 8 free, the most on one is 4",
        ),
        (server(gpuProducts=[BLACKWELL]), [pod("a", 1)], "2 nodes match gpuProducts, 1 has 8 free"),
        (server(gpuProducts=["NVIDIA-B200"]), [], "1 node matches gpuProducts, 1 has 8 free"),
        (server(gpuProducts=["NVIDIA-H200"]), [], "no node matches gpuProducts"),
        (server(), [pod("c", 8, phase="Succeeded")], "3 nodes have GPUs, 3 have 8 free"),
        (server(), [pod("c", 0, first=1)], "3 nodes have GPUs, 2 have 8 free"),
    ],
)
def test_what_is_said_of_the_nodes(wanted: Hardware, pods: list[dict[str, Any]], said: str) -> None:
    assert room_for(wanted, NODES, pods) == said


def test_without_any_gpu_in_the_cluster_that_is_said() -> None:
    assert room_for(server(), [node("d", 0)], []) == "no node has GPUs"
