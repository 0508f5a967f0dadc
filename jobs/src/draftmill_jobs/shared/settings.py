"""What the config says about one dataset, with the run's values under the dataset's own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill_api.jobconfig import JobSource, SynthJobConfig
from draftmill_api.names import WORKER_VARIABLE
from draftmill_api.v1alpha1.source import Fields, Filters
from draftmill_api.v1alpha1.synthrun import Compression, Sampling, Turns
from draftmill_jobs.errors import JobRefusedError


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """One dataset, ready to be read, asked and written."""

    name: str
    source: JobSource
    fields: Fields
    filters: Filters
    shuffle_seed: int | None
    folder: Path
    compression: Compression
    turns: Turns
    max_samples: int | None
    max_tokens: int | None
    sampling: Sampling
    chat_template_kwargs: dict[str, Any]


def datasets_of(config: SynthJobConfig) -> list[DatasetSettings]:
    """The datasets in the spec's order."""
    return [
        DatasetSettings(
            name=dataset.name,
            source=dataset.source,
            fields=dataset.fields,
            filters=dataset.filters,
            shuffle_seed=dataset.shuffle_seed,
            folder=Path(config.output.path) / dataset.name,
            compression=config.output.compression,
            turns=dataset.turns,
            max_samples=dataset.max_samples,
            max_tokens=dataset.max_tokens,
            sampling=config.sampling.over(dataset.sampling),
            chat_template_kwargs={**config.generation.chat_template_kwargs, **dataset.chat_template_kwargs},
        )
        for dataset in config.datasets
    ]


def sampling_facts(sampling: Sampling) -> dict[str, Any]:
    """The sampling that shapes an answer, as numbers: what records carry and folders are bound to.

    `samplesPerPrompt` is left out, for asking for more samples keeps those that are there.
    """
    facts: dict[str, Any] = {"temperature": float(sampling.temperature), "top_p": float(sampling.top_p)}
    if sampling.top_k is not None:
        facts["top_k"] = sampling.top_k
    if sampling.min_p is not None:
        facts["min_p"] = float(sampling.min_p)
    facts["max_completion_tokens"] = sampling.max_completion_tokens
    if sampling.seed is not None:
        facts["seed"] = sampling.seed
    return facts


@dataclass(frozen=True, slots=True)
class Share:
    """Which rows are this worker's: those whose id falls to `index` among `count` workers."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of_concurrency(self, concurrency: int) -> int:
        """The worker's part of the run's requests in flight: at least one."""
        each, rest = divmod(concurrency, self.count)
        return max(1, each + (self.index < rest))

    def of_tokens(self, max_tokens: int) -> int:
        """The worker's part of a dataset's token cap."""
        return -(-max_tokens // self.count)


def share_from_environment() -> Share:
    """Reads `DRAFTMILL_WORKER=i/n`; 0/1 when unset.

    Raises:
        JobRefusedError: It is not of that form, or i is not below n.
    """
    text = os.environ.get(WORKER_VARIABLE, "0/1")
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise JobRefusedError("ConfigurationInvalid", f"{WORKER_VARIABLE}={text!r}: write it as 0/1 or 2/4")
    return Share(int(match[1]), int(match[2]))
