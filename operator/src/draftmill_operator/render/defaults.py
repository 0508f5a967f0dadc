"""Defaults that are frozen into a run, so that a new operator never touches a running server."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.pod import LocalReference, PodOverrides
from draftmill_operator.render.metadata import Manifest, metadata, sealed
from draftmill_operator.render.names import child_name
from draftmill_operator.run import Role, RunIdentity
from draftmill_operator.settings import ImagePullPolicy, OperatorSettings

RENDER_VERSION: Final = 1
"""Raised when rendering changes in a way that would replace pods; older runs keep the older form."""
DEFAULTS_KEY: Final = "defaults.json"


class FrozenDefaults(ApiModel):
    """What a run's children are rendered with besides its spec and plan."""

    render_version: Literal[1] = RENDER_VERSION
    job_image: str
    trainer_image: str
    image_pull_policy: ImagePullPolicy
    image_pull_secrets: list[LocalReference] = Field(default_factory=list)
    server: PodOverrides = Field(default_factory=PodOverrides)
    job: PodOverrides = Field(default_factory=PodOverrides)
    trainer: PodOverrides = Field(default_factory=PodOverrides)

    @classmethod
    def from_settings(cls, settings: OperatorSettings) -> FrozenDefaults:
        """The defaults in force now."""
        return cls(
            job_image=settings.job_image,
            trainer_image=settings.trainer_image,
            image_pull_policy=settings.image_pull_policy,
            image_pull_secrets=settings.image_pull_secrets,
            server=settings.pod_defaults.server,
            job=settings.pod_defaults.job,
            trainer=settings.pod_defaults.trainer,
        )


def defaults_name(run: RunIdentity) -> str:
    """Name of the ConfigMap with the frozen defaults."""
    return child_name(run.key, Role.DEFAULTS)


def render_defaults(run: RunIdentity, defaults: FrozenDefaults) -> Manifest:
    """The immutable ConfigMap with the frozen defaults."""
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(run, Role.DEFAULTS, defaults_name(run)),
            "immutable": True,
            "data": {DEFAULTS_KEY: defaults.model_dump_json(by_alias=True, exclude_none=True)},
        }
    )
