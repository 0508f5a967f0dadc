"""What the container that computes needs: GPUs, other devices, shared memory, and nodes that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from draftmill_api.v1alpha1.draftertrain import DrafterTrainSpec
from draftmill_api.v1alpha1.shared import Server
from draftmill_operator.render.metadata import Manifest
from draftmill_operator.render.volumes import mount

GPU: Final = "nvidia.com/gpu"
GPU_TOLERATION: Final = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
SHARED_MEMORY: Final = "shm"
SHARED_MEMORY_MOUNT: Final = mount(SHARED_MEMORY, "/dev/shm", read_only=False)  # noqa: S108  of the pod


@dataclass(frozen=True)
class Hardware:
    """What one pod asks for."""

    gpus: int
    gpu_products: tuple[str, ...]
    """Accepted values of the node label; any when empty."""
    shared_memory: str
    extra_resources: tuple[tuple[str, str], ...]
    resource_claims: tuple[Manifest, ...]

    @classmethod
    def of(cls, part: Server | DrafterTrainSpec) -> Self:
        """What this part of a spec says."""
        return cls(
            gpus=part.gpus if isinstance(part, Server) else part.gpus_per_node,
            gpu_products=tuple(part.gpu_products or ()),
            shared_memory=part.shared_memory,
            extra_resources=tuple((part.extra_resources or {}).items()),
            resource_claims=tuple(part.resource_claims or ()),
        )

    def resources(self) -> Manifest:
        """Limits and claims of the container."""
        limits = dict(self.extra_resources)
        if self.gpus:
            limits[GPU] = str(self.gpus)
        resources: Manifest = {"limits": limits} if limits else {}
        if self.resource_claims:
            resources["claims"] = [{"name": claim["name"]} for claim in self.resource_claims]
        return resources

    def volume(self) -> Manifest:
        """The shared memory, which is mounted by `SHARED_MEMORY_MOUNT`."""
        return {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": self.shared_memory}}

    def pod(self) -> Manifest:
        """Fields of the pod: where it may run, and its claims."""
        fields: Manifest = {}
        if self.gpus:
            fields["tolerations"] = [GPU_TOLERATION]
        if self.gpu_products:
            fields["affinity"] = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": self._gpu_expressions()}]
                    }
                }
            }
        if self.resource_claims:
            fields["resourceClaims"] = list(self.resource_claims)
        return fields

    def _gpu_expressions(self) -> list[Manifest]:
        product: Manifest = {
            "key": "nvidia.com/gpu.product",
            "operator": "In",
            "values": list(self.gpu_products),
        }
        if not self.gpus:
            return [product]
        count = {"key": "nvidia.com/gpu.count", "operator": "Gt", "values": [str(self.gpus - 1)]}
        return [product, count]
