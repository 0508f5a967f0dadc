"""What every step derives from config and model: layers, the store's binding, the rules for records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.store import StoreBinding
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.index import Input
from draftmill_jobs.extract.layers import layer_ids
from draftmill_jobs.extract.records import find_files
from draftmill_jobs.extract.selection import Rules
from draftmill_jobs.store.layout import StateLayout


@dataclass(frozen=True, slots=True)
class Prepared:
    """An ExtractRun, ready to be planned, done or checked."""

    model: ModelFacts
    binding: StoreBinding
    layout: StateLayout
    input: Input
    folder: Path


def prepare(config: ExtractJobConfig, model: ModelFacts) -> Prepared:
    """Reads what the config names, but no records yet.

    Where there is a plan, its layers are meant, for servers were started with them: a drafter that they were
    taken from may be another one by now.

    Raises:
        JobRefusedError: Layers, records or widths cannot be used.
    """
    binding = StoreBinding(
        model_fingerprint=model.fingerprint,
        layer_ids=config.plan.layer_ids if config.plan else layer_ids(config.layers, model.layers),
        hidden_size=model.hidden_size,
        dtype=config.dtype,
        max_row_tokens=config.max_row_tokens,
        on_long_row=config.on_long_row,
        backend=config.backend,
    )
    try:
        layout = StateLayout.of(binding)
    except ValueError as error:
        raise JobRefusedError("ModelNotUsable", str(error)) from error
    files = find_files(config.records, model)
    return Prepared(
        model=model,
        binding=binding,
        layout=layout,
        input=Input(files, Rules.of(config, model), model),
        folder=Path(config.output.path),
    )
