"""What the checks look at: some rows of a store, a drafter's folder, the target's few tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftmill_jobs.doctor.verdict import NotLookedAtError
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.store.reader import Check, Store
from draftmill_jobs.train.data import RowCorruptError, TrainRow
from draftmill_jobs.train.draft_config import DraftConfig, DraftConfigError, WrittenConfig
from draftmill_jobs.train.making import make_unroller
from draftmill_jobs.train.starting import (
    Start,
    StoreShape,
    read_draft_config,
    read_vocabulary,
    read_weights,
)
from draftmill_jobs.train.step import Unroller
from draftmill_jobs.train.store_rows import StoreRows
from draftmill_jobs.train.target import TargetError, TargetTensors, read_target
from draftmill_jobs.train.teacher import Teacher
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import DraftVocabulary, VocabularyError

CPU: Final = torch.device("cpu")
_MOST_TOKENS: Final = 16_384  # of the rows that are looked at


@dataclass(frozen=True, eq=False)
class Patient:
    """What is examined; each part is read when a check asks for it.

    Attributes:
        store: Its folder.
        drafter: Its folder.
        target: Its folder, when there is one.
        most_rows: Rows of the store that are looked at, spread evenly.
    """

    store: Path
    drafter: Path
    target: Path | None
    most_rows: int

    @cached_property
    def opened(self) -> Store:
        """The store.

        Raises:
            StoreCorruptError: It is none.
        """
        return Store.open(self.store, check=Check.HEADERS)

    @cached_property
    def source(self) -> StoreRows:
        """Its rows, whole."""
        return StoreRows(self.opened, None)

    @cached_property
    def shape(self) -> StoreShape:
        """What the store has for each token."""
        return self.source.shape

    @cached_property
    def chosen(self) -> list[int]:
        """Numbers of the rows that are looked at."""
        count = len(self.opened)
        if not count:
            raise NotLookedAtError("the store has no rows")
        places = np.linspace(0, count - 1, min(count, self.most_rows)).astype(int)
        spread: list[int] = np.unique(places).tolist()
        tokens = np.cumsum([self.source.rows[row].tokens for row in spread])
        return spread[: max(1, int(np.searchsorted(tokens, _MOST_TOKENS, side="right")))]

    @cached_property
    def whole(self) -> dict[int, TrainRow]:
        """Those of them that are what was written; there may be none."""
        found: dict[int, TrainRow] = {}
        for row in self.chosen:
            try:
                found[row] = self.source.read(row)
            except RowCorruptError:
                continue
        return found

    @property
    def rows(self) -> dict[int, TrainRow]:
        """The same, for checks that need at least one."""
        if not self.whole:
            raise NotLookedAtError("no row of the store is what was written")
        return self.whole

    @cached_property
    def tensors(self) -> TargetTensors:
        """The target's embeddings, final norm and lm_head."""
        if self.target is None:
            raise NotLookedAtError("it needs the target's folder: give --target")
        try:
            return read_target(self.target)
        except (TargetError, TensorFolderError) as error:
            raise NotLookedAtError(str(error)) from error

    @cached_property
    def teacher(self) -> Teacher:
        """The target's next-token distribution over its whole vocabulary."""
        everything = DraftVocabulary.of_everything(self.tensors.vocab_size)
        return Teacher(self.tensors, everything, CPU, torch.float32)

    @cached_property
    def written(self) -> WrittenConfig:
        """The drafter's config."""
        try:
            return read_draft_config(self.drafter)
        except DraftConfigError as error:
            raise NotLookedAtError(f"the drafter's config cannot be used: {error}") from error

    @cached_property
    def vocabulary(self) -> DraftVocabulary:
        """The drafter's map."""
        try:
            return read_vocabulary(TensorFolder(self.drafter), self.written.config)
        except (TensorFolderError, VocabularyError) as error:
            raise NotLookedAtError(f"the drafter's d2t cannot be used: {error}") from error

    @cached_property
    def start(self) -> Start:
        """The drafter."""
        try:
            weights = read_weights(TensorFolder(self.drafter), self.written.config)
        except TensorFolderError as error:
            raise NotLookedAtError(f"the drafter's weights cannot be used: {error}") from error
        return Start(self.written.config, self.vocabulary, weights)

    def differences(self, config: DraftConfig) -> list[str]:
        """In what a drafter with this config does not fit the target and the store."""
        shapes = {
            "vocabulary": (config.vocab_size, self.tensors.vocab_size),
            "embeddings": (config.hidden_size, self.tensors.embeddings.shape[1]),
            "states": (config.target_hidden_size, self.shape.hidden_size),
            "number of states": (config.states, len(self.shape.layer_ids)),
        }
        return [f"{what} {ours} and {theirs}" for what, (ours, theirs) in shapes.items() if ours != theirs]

    def unroller(self, start: Start) -> Unroller:
        """A drafter with this target; this one, or one that differs from it in its config.

        Raises:
            NotLookedAtError: The two cannot go together.
        """
        if self.differences(start.config):
            raise NotLookedAtError("the drafter does not fit target and store")
        longest = max(len(row.mask) for row in self.rows.values())
        try:
            return make_unroller(start, self.tensors, CPU, torch.float32, longest)
        except RuntimeError as error:
            raise JobRefusedError("DrafterNotUsable", f"{self.drafter}: {error}") from error

    @cached_property
    def answers(self) -> Answers:
        """What the target said in these rows."""
        return _answers(self)


@dataclass(frozen=True, eq=False)
class Answers:
    """Positions at which the target says a token of an answer, over all rows that are looked at.

    Attributes:
        last: `[J, H]`, the last stored state there.
        said: int64[J], the token that follows in the row.
        greedy: bool[J], whether the row was answered at temperature 0.
    """

    last: Tensor
    said: Tensor
    greedy: NDArray[np.bool_]


def _answers(patient: Patient) -> Answers:
    last: list[Tensor] = []
    said: list[Tensor] = []
    greedy: list[NDArray[np.bool_]] = []
    for number, row in patient.rows.items():
        places = np.flatnonzero(row.mask[1:])
        last.append(row.states[places, -1].float())
        said.append(torch.from_numpy(row.token_ids[places + 1].astype(np.int64)))
        greedy.append(np.full(len(places), patient.source.rows[number].greedy))
    if not sum(len(part) for part in said):
        raise NotLookedAtError("no token of these rows is under the loss mask")
    return Answers(torch.cat(last), torch.cat(said), np.concatenate(greedy))
