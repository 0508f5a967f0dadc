"""Overrides of the pods that a run starts: narrow on purpose, merged over the chart's podDefaults."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from draftmill_api.base import ApiModel, KubernetesObject

_NAMED = {
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["name"],
    "properties": {"name": {"type": "string", "maxLength": 253}},
}
_MOUNT = {
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["name", "mountPath"],
    "properties": {
        "name": {"type": "string", "maxLength": 253},
        "mountPath": {"type": "string", "maxLength": 512},
    },
}


def _list_map(*keys: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


Named = Annotated[dict[str, Any], Field(json_schema_extra=_NAMED)]
Mount = Annotated[dict[str, Any], Field(json_schema_extra=_MOUNT)]
StringMap = dict[str, Annotated[str, Field(max_length=4096)]]


class PodOverrides(ApiModel):
    """What may be changed in a pod that Draftmill renders; the forms are those of the Pod API."""

    node_selector: StringMap | None = Field(
        default=None, max_length=32, description="Labels that the node must have."
    )
    tolerations: list[KubernetesObject] | None = Field(
        default=None, max_length=32, description="Tolerations, added to those of podDefaults."
    )
    affinity: KubernetesObject | None = Field(
        default=None,
        description="Affinity; node terms are combined with the choice of GPU products, both must hold.",
    )
    priority_class_name: str | None = Field(
        default=None, max_length=253, description="PriorityClass of the pods."
    )
    annotations: StringMap | None = Field(default=None, max_length=32, description="Annotations of the pods.")
    labels: StringMap | None = Field(
        default=None, max_length=32, description="Labels of the pods; draftmill.dev/ labels are refused."
    )
    env: list[Named] | None = Field(
        default=None,
        max_length=128,
        description="Environment variables of the main container; the same name replaces one of podDefaults.",
        json_schema_extra=_list_map("name"),
    )
    env_from: list[KubernetesObject] | None = Field(
        default=None, max_length=16, description="ConfigMaps and Secrets taken as environment variables."
    )
    volumes: list[Named] | None = Field(
        default=None,
        max_length=32,
        description="Further volumes. hostPath is refused outside the prefixes that the chart allows.",
        json_schema_extra=_list_map("name"),
    )
    volume_mounts: list[Mount] | None = Field(
        default=None,
        max_length=32,
        description="Mounts of the main container; the same mountPath replaces one of podDefaults.",
        json_schema_extra=_list_map("mountPath"),
    )
    image_pull_secrets: list[Named] | None = Field(
        default=None,
        max_length=16,
        description="Secrets for pulling the images.",
        json_schema_extra=_list_map("name"),
    )
    service_account_name: str | None = Field(
        default=None, max_length=253, description="ServiceAccount of the pods; no token is mounted."
    )
    security_context: KubernetesObject | None = Field(
        default=None, description="Security context of the main container."
    )
    resources: KubernetesObject | None = Field(
        default=None, description="Requests and limits of the main container, over the computed ones."
    )
    scheduler_name: str | None = Field(default=None, max_length=253, description="Scheduler of the pods.")
    runtime_class_name: str | None = Field(
        default=None, max_length=253, description="RuntimeClass of the pods."
    )
