"""Settings of the operator, which the chart writes to a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError

from draftmill_api.base import ApiModel
from draftmill_api.v1alpha1.pod import LocalReference, PodOverrides


class SettingsError(Exception):
    """The settings file cannot be used; the message says where and why."""


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls the image of a job pod."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class LogLevel(StrEnum):
    """How much the operator logs."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


class LogFormat(StrEnum):
    """How a log line looks."""

    JSON = "Json"
    TEXT = "Text"


class PodDefaults(ApiModel):
    """What the administrator puts under every pod; a run's own overrides win."""

    server: PodOverrides = Field(default_factory=PodOverrides)
    job: PodOverrides = Field(default_factory=PodOverrides)
    trainer: PodOverrides = Field(default_factory=PodOverrides)


class OperatorSettings(ApiModel):
    """The whole settings file."""

    job_image: str = Field(min_length=1, max_length=512)
    trainer_image: str = Field(min_length=1, max_length=512, description="Of jobs that compute with torch.")
    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    image_pull_secrets: list[LocalReference] = Field(default_factory=list)
    pod_defaults: PodDefaults = Field(default_factory=PodDefaults)
    host_path_prefixes: list[Annotated[str, Field(pattern=r"^/")]] = Field(default_factory=list)
    watch_namespaces: list[str] = Field(default_factory=list)
    lease_name: str = "draftmill-operator"
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.JSON


def load_settings(path: Path) -> OperatorSettings:
    """Read the settings file.

    Raises:
        SettingsError: the file is missing, no YAML, or has a wrong or unknown field.
    """
    try:
        return OperatorSettings.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise SettingsError(f"the settings file {path} is wrong: {error}") from error
