"""The job's config file: read once to start, then every second for what may change while running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from draftmill_api.jobconfig import SynthJobConfig, config_hash
from draftmill_jobs.errors import JobRefusedError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A config and the hash of the text that it was read from."""

    config: SynthJobConfig
    hash: str


def load(path: Path) -> LoadedConfig:
    """Reads the config file.

    Raises:
        JobRefusedError: It is not there, or does not say what a job needs.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise JobRefusedError("ConfigurationInvalid", f"cannot read the config {path}: {error}") from error
    return _parse(text, path)


def _parse(text: str, path: Path) -> LoadedConfig:
    try:
        return LoadedConfig(SynthJobConfig.model_validate(yaml.safe_load(text)), config_hash(text))
    except yaml.YAMLError as error:
        raise JobRefusedError("ConfigurationInvalid", f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise JobRefusedError("ConfigurationInvalid", f"{path}: {place}: {first['msg']}") from error


async def watch(
    path: Path, current: LoadedConfig, changed: Callable[[LoadedConfig], None], *, every: float = 1.0
) -> None:
    """Calls `changed` whenever the file holds another valid config; never returns.

    A file that cannot be read or understood (an editor is half way through) leaves the old config in force.
    """
    refused = ""
    while True:
        await asyncio.sleep(every)
        try:
            loaded = load(path)
        except JobRefusedError as error:
            if error.message != refused:
                log.warning("the config in force stays: %s", error.message)
            refused = error.message
            continue
        refused = ""
        if loaded.hash != current.hash:
            current = loaded
            changed(loaded)
