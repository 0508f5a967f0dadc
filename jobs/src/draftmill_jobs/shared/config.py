"""The job's config file: read once to start, then every second for what may change while running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import yaml
from pydantic import ValidationError

from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.jobconfig import SynthJobConfig, config_hash
from draftmill_api.trainjob import TrainJobConfig
from draftmill_jobs.errors import JobRefusedError

log = logging.getLogger(__name__)

JobConfig: TypeAlias = SynthJobConfig | ExtractJobConfig | TrainJobConfig
Config = TypeVar("Config", SynthJobConfig, ExtractJobConfig, TrainJobConfig)

_DEFAULT_KIND: Final = "SynthRun"
_TYPES: Final[dict[str, type[JobConfig]]] = {
    "SynthRun": SynthJobConfig,
    "ExtractRun": ExtractJobConfig,
    "DrafterTrain": TrainJobConfig,
}


@dataclass(frozen=True, slots=True)
class LoadedConfig(Generic[Config]):
    """A config and the hash of the text that it was read from."""

    config: Config
    hash: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file whose kind of run is known.

    Attributes:
        kind: Which config it has to be.
    """

    path: Path
    text: str
    value: dict[str, Any]
    kind: type[JobConfig]

    def parse(self, wanted: type[Config]) -> LoadedConfig[Config]:
        """The config that the file holds.

        Raises:
            JobRefusedError: It is of another kind of run, or does not say what a job needs.
        """
        is_other = self.kind is not wanted
        if is_other:
            raise _invalid(f"{self.path} is of {_kind_of(self.kind)}, and not of {_kind_of(wanted)}")
        try:
            return LoadedConfig(wanted.model_validate(self.value), config_hash(self.text))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise _invalid(f"{self.path}: {place}: {first['msg']}") from error


def read(path: Path) -> ConfigFile:
    """Reads the config file so far that the kind of its run is known.

    Raises:
        JobRefusedError: It is not there, is not YAML, or of no kind that there is.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(f"cannot read the config {path}: {error}") from error
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _invalid(f"{path} is not YAML: {error}") from error
    if not isinstance(value, dict):
        raise _invalid(f"{path} is no config: it has no fields")
    run = value.get("run")
    kind = run.get("kind", _DEFAULT_KIND) if isinstance(run, dict) else _DEFAULT_KIND
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _invalid(f"{path}: run.kind is {kind!r}; it is one of {', '.join(_TYPES)}")
    return ConfigFile(path, text, value, _TYPES[kind])


def load(path: Path, wanted: type[Config]) -> LoadedConfig[Config]:
    """Reads the config file of one kind of run.

    Raises:
        JobRefusedError: It is not there, of another kind, or does not say what a job needs.
    """
    return read(path).parse(wanted)


async def watch(
    path: Path,
    current: LoadedConfig[Config],
    changed: Callable[[LoadedConfig[Config]], None],
    *,
    every: float = 1.0,
) -> None:
    """Calls `changed` whenever the file holds another valid config; never returns.

    A file that cannot be read or understood (an editor is half way through) leaves the old config in force.
    """
    refused = ""
    while True:
        await asyncio.sleep(every)
        try:
            loaded = load(path, type(current.config))
        except JobRefusedError as error:
            if error.message != refused:
                log.warning("the config in force stays: %s", error.message)
            refused = error.message
            continue
        refused = ""
        if loaded.hash != current.hash:
            current = loaded
            changed(loaded)


def _kind_of(config: type[Any]) -> str:
    (kind,) = (kind for kind, each in _TYPES.items() if each is config)
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def _invalid(sentence: str) -> JobRefusedError:
    return JobRefusedError("ConfigurationInvalid", sentence)
