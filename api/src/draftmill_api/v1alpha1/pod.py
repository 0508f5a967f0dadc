"""Overrides of the pods that a run starts: narrow on purpose, merged over the chart's podDefaults."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from pydantic.config import JsonDict

from draftmill_api.base import ANYTHING, ApiModel, KubernetesObject, Rule

_TEXT: JsonDict = {"type": "string", "maxLength": 4096}
_NAME: JsonDict = {"type": "string", "minLength": 1, "maxLength": 253}
_PATH: JsonDict = {"type": "string", "minLength": 1, "maxLength": 512}
_FLAG: JsonDict = {"type": "boolean"}
_OBJECT: JsonDict = {"type": "object", "additionalProperties": ANYTHING}
_VOLUME_SOURCES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "hostPath",
    "image",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
)


def _closed(required: list[str], properties: JsonDict) -> JsonDict:
    """An object with these properties and no others: only so does CEL see every change inside."""
    return {"additionalProperties": False, "required": [*required], "properties": properties}


def _list_map(*keys: str) -> JsonDict:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]}


EnvironmentVariable = Annotated[
    dict[str, Any],
    Field(json_schema_extra=_closed(["name"], {"name": _NAME, "value": _TEXT, "valueFrom": _OBJECT})),
]
PodVolume = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra=_closed(["name"], {"name": _NAME, **dict.fromkeys(_VOLUME_SOURCES, _OBJECT)}),
    ),
]
Mount = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra=_closed(
            ["name", "mountPath"],
            {
                "name": _NAME,
                "mountPath": _PATH,
                "subPath": _PATH,
                "subPathExpr": _PATH,
                "readOnly": _FLAG,
                "recursiveReadOnly": _NAME,
                "mountPropagation": _NAME,
            },
        )
    ),
]
LocalReference = Annotated[dict[str, Any], Field(json_schema_extra=_closed(["name"], {"name": _NAME}))]
ResourceClaim = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra=_closed(
            ["name"],
            {"name": _NAME, "resourceClaimName": _NAME, "resourceClaimTemplateName": _NAME},
        )
    ),
]
StringMap = dict[str, Annotated[str, Field(max_length=4096)]]


class PodOverrides(ApiModel):
    """What may be changed in a pod that Draftmill renders; the forms are those of the Pod API."""

    RULES = (
        Rule(
            "!has(self.labels) || self.labels.all(key, !key.startsWith('draftmill.dev/'))",
            "labels that begin with draftmill.dev/ are the operator's own; choose another name",
        ),
        Rule(
            "!has(self.env) || self.env.all(variable, !variable.name.startsWith('DRAFTMILL_'))",
            "variables that begin with DRAFTMILL_ are set by the operator; choose another name",
        ),
    )

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
    env: list[EnvironmentVariable] | None = Field(
        default=None,
        max_length=128,
        description="Environment variables of the main container; the same name replaces one of podDefaults.",
        json_schema_extra=_list_map("name"),
    )
    env_from: list[KubernetesObject] | None = Field(
        default=None, max_length=16, description="ConfigMaps and Secrets taken as environment variables."
    )
    volumes: list[PodVolume] | None = Field(
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
    image_pull_secrets: list[LocalReference] | None = Field(
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
