"""The end of a DrafterTrain: opens the exported drafter again and says what it is made of."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from draftmill_api.drafter import (
    DrafterEvaluation,
    DrafterFile,
    DrafterInit,
    DrafterManifest,
    DrafterSource,
)
from draftmill_api.trainjob import TrainFinishResult, TrainJobConfig
from draftmill_api.v1alpha1.trainstatus import TrainProgress, Yardstick
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.evaluate.comparing import together
from draftmill_jobs.evaluate.evaluating import EVALUATION_FILE, weights_hash
from draftmill_jobs.shared.artefacts import MANIFEST_FILE, below_volume, write_json
from draftmill_jobs.shared.files import sha256_of, write_atomically
from draftmill_jobs.train.board import settled_progress
from draftmill_jobs.train.checkpoint import Checkpoints, TrainState, is_of
from draftmill_jobs.train.export import engine_folders, verify
from draftmill_jobs.train.folders import CHECKPOINTS, DRAFTER
from draftmill_jobs.train.layers import DraftEngine
from draftmill_jobs.train.model_card import model_card
from draftmill_jobs.train.opening import Opened, open_input
from draftmill_jobs.train.preparing import Prepared, prepare
from draftmill_jobs.train.settings import settings_of
from draftmill_jobs.train.training import exported, taken_step

log = logging.getLogger(__name__)

_CARD: Final = "README.md"


@dataclass(frozen=True, eq=False)
class _Finished:
    """A training that is done, and its drafter's folders."""

    config: TrainJobConfig
    opened: Opened
    prepared: Prepared
    state: TrainState
    folders: dict[DraftEngine, Path]
    evaluation: DrafterEvaluation | None

    @property
    def output(self) -> Path:
        """Where the manifest goes."""
        return Path(self.config.output.path)


def finish(config: TrainJobConfig) -> TrainFinishResult:
    """Compares the exported drafter with its checkpoint; writes model card and `manifest.json`.

    Raises:
        JobRefusedError: The training is not done, or is not the one that the config describes; or it was not
            evaluated as that says.
        JobFailedError: The drafter is not what was trained.
    """
    opened = open_input(config)
    prepared = prepare(settings_of(config), opened.rows, opened.rows.shape)
    output = Path(config.output.path)
    checkpoints = Checkpoints(output / CHECKPOINTS, config.checkpoint.keep)
    state = _last_state(checkpoints, prepared)
    step = taken_step(state)
    trained = exported(prepared, checkpoints.weights(step))
    folders = engine_folders(prepared.engine_ids, output / DRAFTER)
    for engine, folder in folders.items():
        verify(folder, trained, prepared.engine_ids[engine])
        log.info("%s: the drafter of step %d, for %s", folder, step, engine)
    finished = _Finished(config, opened, prepared, state, folders, _evaluation(config))
    card = model_card(_manifest(finished, files=[]))
    for folder in set(folders.values()):
        write_atomically(folder / _CARD, card.encode())
    digest = write_json(output / MANIFEST_FILE, _manifest(finished, _files(folders.values(), output)))
    return _result(finished, digest)


def _last_state(checkpoints: Checkpoints, prepared: Prepared) -> TrainState:
    steps, total = checkpoints.steps(), len(prepared.schedule.positions)
    if not steps:
        raise JobRefusedError(
            "OutputMissing", f"{checkpoints.folder} has no checkpoint: nothing was trained there"
        )
    state = checkpoints.state(steps[-1])
    if not is_of(state, prepared.identity, prepared.origin):
        raise JobRefusedError(
            "TrainingDiffers",
            f"the checkpoints in {checkpoints.folder} are of other rows or states, settings or another start "
            "than this config's",
        )
    if state.step != total:
        raise JobRefusedError(
            "TrainingUnfinished",
            f"{checkpoints.folder} has steps up to {state.step} of {total}: run `draftmill train` again",
        )
    return state


def _manifest(finished: _Finished, files: list[DrafterFile]) -> DrafterManifest:
    config, prepared, state = finished.config, finished.prepared, finished.state
    in_force = {
        "learning_rate": f"{config.learning_rate:g}",
        "ttt_length": config.ttt_length,
        "ttt_decay": f"{config.ttt_decay:g}",
        "pod": None,
    }
    return DrafterManifest(
        run=config.run,
        model=finished.opened.manifest.model,
        model_name=config.target.name,
        source=DrafterSource(
            path=below_volume(finished.opened.folder), sha256=finished.opened.manifest_sha256
        ),
        init=_init(config),
        scratch=config.scratch,
        training=config.training.model_copy(update=in_force),
        held_out_percent=config.held_out_percent,
        layer_ids=list(prepared.store.layer_ids),
        draft_vocabulary_size=len(prepared.start.vocabulary),
        coverage=prepared.coverage,
        rows=len(prepared.split.training),
        held_out_rows=len(prepared.split.held_out),
        corrupt_rows=len(state.corrupt),
        steps=taken_step(state),
        tokens=state.tokens,
        acceptance=state.best,
        evaluation=finished.evaluation,
        vllm=_below(finished.folders[DraftEngine.VLLM], finished.output),
        sglang=_below(finished.folders[DraftEngine.SGLANG], finished.output),
        files=files,
    )


def _evaluation(config: TrainJobConfig) -> DrafterEvaluation | None:
    """What servers made of this drafter, where that was to be measured."""
    if config.evaluation is None:
        return None
    output = Path(config.output.path)
    path = output / EVALUATION_FILE
    try:
        found = DrafterEvaluation.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise JobRefusedError(
            "EvaluationMissing", f"{path} cannot be read ({error}): run `draftmill evaluate` first"
        ) from error
    if found.drafter_sha256 != weights_hash(output):
        raise JobRefusedError(
            "EvaluationDiffers", f"{path} is of another drafter: run `draftmill evaluate` again"
        )
    return found


def _init(config: TrainJobConfig) -> DrafterInit | None:
    if config.init is None:
        return None
    folder = Path(config.init.path)
    return DrafterInit(
        path=config.init.path, files=_hashed([folder / "config.json", *_weights(folder)], folder)
    )


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _files(folders: Iterable[Path], root: Path) -> list[DrafterFile]:
    found = (path for folder in sorted(set(folders)) for path in sorted(folder.iterdir()))
    return _hashed((path for path in found if path.is_file()), root)


def _hashed(paths: Iterable[Path], root: Path) -> list[DrafterFile]:
    return [
        DrafterFile(path=_below(path, root), bytes=path.stat().st_size, sha256=sha256_of(path))
        for path in paths
    ]


def _below(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _result(finished: _Finished, digest: str) -> TrainFinishResult:
    best, folders = finished.state.best, finished.folders
    figure = f"{best.length:.2f}" if best is not None else ""
    is_greedy = best is not None and best.yardstick is Yardstick.ACCEPTANCE_LENGTH
    return TrainFinishResult(
        progress=_progress(finished),
        vllm=below_volume(folders[DraftEngine.VLLM]),
        sglang=below_volume(folders[DraftEngine.SGLANG]),
        steps=taken_step(finished.state),
        acceptance_length=figure if is_greedy else "",
        teacher_agreement="" if is_greedy else figure,
        evaluation=together(finished.evaluation) if finished.evaluation is not None else None,
        manifest=below_volume(finished.output / MANIFEST_FILE),
        manifest_sha256=digest,
    )


def _progress(finished: _Finished) -> TrainProgress:
    positions = finished.prepared.schedule.positions
    return settled_progress(
        finished.state,
        epoch=positions[-1].epoch + 1,
        total=len(positions),
        coverage=finished.prepared.coverage,
    )
