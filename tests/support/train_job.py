"""A DrafterTrain on disk, as a laptop would have it: target, store with its manifest, config."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from draftmill_api.jobconfig import JobRun
from draftmill_api.record import RecordStatus
from draftmill_api.store import RowSelection, StoreBinding, StoreManifest, StoreSource
from draftmill_api.trainjob import TrainFinishResult, TrainJobConfig
from draftmill_api.v1alpha1.extractrun import StateDtype
from draftmill_api.v1alpha1.extractstatus import SkippedRows
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_api.v1alpha1.trainstatus import TrainPlan
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.shared.artefacts import MANIFEST_FILE, write_json
from draftmill_jobs.shared.config import load
from draftmill_jobs.store import Check, Store, StoreWriter, audit_store, write_index
from draftmill_jobs.train.finishing import finish
from draftmill_jobs.train.planning import plan
from tests.support.files import replace
from tests.support.states import ALONE, RUN
from tests.support.training import HIDDEN, LAYERS, SHAPE, VOCABULARY, Rows, store_row, write_target

TRAINING = {
    "epochs": 2,
    "learningRate": 0.01,
    "warmupSteps": 2,
    "tttLength": 3,
    "tokensPerBatch": 64,
    "precision": "Float32",
}


@dataclass
class TrainJob:
    """A config whose parts a test changes before it runs."""

    folder: Path
    rows: Rows = field(default_factory=Rows)
    fields: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=lambda: {"scratch": {"draftVocabSize": 48}})

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_target(self.target)
        with StoreWriter(self.store, self.binding, shard_bytes=1 << 20, run=RUN, share=ALONE) as writer:
            for number in range(self.rows.count):
                writer.append(store_row(self.rows, number), lambda: None)
            writer.seal()
        write_store_manifest(self.store, self.facts, source=StoreSource(path="records", sha256="r" * 64))

    @property
    def path(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    @property
    def store(self) -> Path:
        return self.folder / "states"

    @property
    def output(self) -> Path:
        return self.folder / "drafter-run"

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(
            fingerprint=fingerprint(self.target),
            architecture="LlamaForCausalLM",
            layers=LAYERS,
            hidden_size=HIDDEN,
            vocabulary_size=VOCABULARY,
            think_family="none",
        )

    @property
    def binding(self) -> StoreBinding:
        return StoreBinding(
            model_fingerprint=self.facts.fingerprint,
            layer_ids=[*SHAPE.layer_ids, LAYERS],
            hidden_size=HIDDEN,
            dtype=StateDtype.FLOAT32,
        )

    def write(self) -> Path:
        """Writes the config."""
        config = {
            "run": {"kind": "DrafterTrain", "name": "kimi-drafter"},
            "target": {"name": "tiny", "path": str(self.target)},
            "store": {"path": str(self.store)},
            "output": {"path": str(self.output)},
            "heldOutPercent": 20,
            "checkpoint": {"everySteps": 3, "keep": 2},
            **self.start,
            **self.fields,
            "training": {**TRAINING, **self.training},
        }
        replace(self.path, json.dumps(config))
        return self.path

    @property
    def config(self) -> TrainJobConfig:
        return load(self.write(), TrainJobConfig).config

    def plan(self) -> TrainPlan:
        return plan(self.config)

    def finish(self) -> TrainFinishResult:
        return finish(self.config)


def write_store_manifest(folder: Path, model: ModelFacts, *, source: StoreSource) -> None:
    """Completes a store as the finish of an ExtractRun does."""
    write_index(folder)
    with Store.open(folder, check=Check.HEADERS) as store:
        binding = store.binding
    audit = audit_store(folder)
    assert audit.index is not None
    manifest = StoreManifest(
        run=JobRun(kind="ExtractRun", name="states"),
        model=model,
        model_name="tiny",
        tokenizer_sha256="t" * 64,
        chat_template_sha256="c" * 64,
        binding=binding,
        source=source,
        selection=RowSelection(statuses=[RecordStatus.OK]),
        rows=len(audit.rows),
        tokens=audit.tokens,
        bytes=audit.bytes,
        cut_rows=0,
        cut_tokens=0,
        skipped=SkippedRows(),
        quarantined={},
        index=audit.index,
        shards=audit.shards,
    )
    write_json(folder / MANIFEST_FILE, manifest)


def flip_a_byte(path: Path, at: int) -> None:
    """As a broken disk does."""
    content = np.fromfile(path, np.uint8)
    content[at] ^= 0xFF
    content.tofile(path)
