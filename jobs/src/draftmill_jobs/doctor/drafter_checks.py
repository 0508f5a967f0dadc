"""Whether the drafter's config, map and weights are those of its training, and how well it drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from draftmill_api.v1alpha1.trainstatus import Yardstick
from draftmill_jobs.doctor.evidence import CPU, Patient
from draftmill_jobs.doctor.verdict import Finding, NotLookedAtError, Outcome
from draftmill_jobs.train.data import PackedBatch, Reading, RowInfo, TrainRow
from draftmill_jobs.train.draft_config import DraftConfigError
from draftmill_jobs.train.evaluation import Evaluation, Evaluator, yardstick_for
from draftmill_jobs.train.layers import (
    DraftEngine,
    LayerIdError,
    default_layer_ids,
    is_deepseek_family,
    layer_ids_for,
)
from draftmill_jobs.train.preparing import LEAST_COVERAGE
from draftmill_jobs.train.starting import Start, read_draft_config, read_vocabulary, read_weights
from draftmill_jobs.train.tensors import TensorFolder, TensorFolderError
from draftmill_jobs.train.vocabulary import VocabularyError, count_tokens
from draftmill_jobs.train.world import World

DRAFT_TOKENS: Final = 4
_BATCH_TOKENS: Final = 4096
_POOR_COVERAGE: Final = 0.5
MUCH_BETTER: Final = 0.1  # in the share of tokens that are right
_GOOD_FIRST, _POOR_FIRST = 0.35, 0.15  # share of cycles whose first token is accepted
_ALONE: Final = World(0, 1, CPU)


def check_export(patient: Patient) -> Finding:
    """Config, map and every tensor can be read, and nothing is beyond them."""
    try:
        written = read_draft_config(patient.drafter)
        tensors = TensorFolder(patient.drafter)
        read_vocabulary(tensors, written.config)
        weights = read_weights(tensors, written.config)
    except (DraftConfigError, TensorFolderError, VocabularyError) as error:
        return Finding(Outcome.WRONG, str(error))
    broken = [name for name, tensor in weights.items() if not torch.isfinite(tensor).all()]
    if broken:
        return Finding(Outcome.WRONG, f"NaN or infinite values in {', '.join(broken[:3])}")
    return Finding(Outcome.FINE, f"{len(weights)} tensors, all named, shaped and finite")


def check_fit(patient: Patient) -> Finding:
    """The drafter's vocabulary, widths and number of states are those of target and store."""
    if unlike := patient.differences(patient.written.config):
        return Finding(Outcome.WRONG, f"the drafter and its target or store differ: {', '.join(unlike)}")
    return Finding(Outcome.FINE, "the drafter's shapes are those of target and store")


def check_layer_ids(patient: Patient) -> Finding:
    """The layers that the drafter's config asks an engine for are those that the store has."""
    store, ids = patient.shape.layer_ids, patient.written.layer_ids
    if ids is None:
        default = default_layer_ids(patient.shape.layers)
        outcome = Outcome.WORTH_A_LOOK if default == store else Outcome.WRONG
        return Finding(
            outcome,
            f"its config names none: engines take {list(default)}, the states are of {list(store)}",
        )
    engines = [engine for engine in DraftEngine if list(ids) == _written_for(patient, engine)]
    if not engines:
        return Finding(
            Outcome.WRONG,
            f"its config has {list(ids)}, and the states are of {list(store)}, entering a layer: no engine "
            "would give it those",
        )
    found = f"{list(ids)} is read by {' and '.join(engines)} as {list(store)}, those of the store"
    others = [engine for engine in DraftEngine if engine not in engines]
    if others and patient.target is not None:
        found += f"; {others[0]} would take other layers"
    return Finding(Outcome.FINE, found)


def check_coverage(patient: Patient) -> Finding:
    """How much of the answers the drafter can say at all, and whether d2t and t2d say the same."""
    vocabulary = patient.vocabulary
    tensors = TensorFolder(patient.drafter)
    if "t2d" in tensors and not np.array_equal(tensors.read("t2d").numpy(), vocabulary.t2d):
        return Finding(Outcome.WRONG, "d2t and t2d name different tokens of the target")
    counts = np.zeros(vocabulary.size_of_target, np.int64)
    for row in patient.rows.values():
        counts += count_tokens(row.token_ids[row.mask], vocabulary.size_of_target)
    coverage = vocabulary.coverage(counts)
    found = f"{len(vocabulary):,} tokens, {coverage:.1%} of the answers'"
    if coverage < _POOR_COVERAGE:
        return Finding(Outcome.WRONG, f"{found}: it was made for other data")
    outcome = Outcome.FINE if coverage >= LEAST_COVERAGE else Outcome.WORTH_A_LOOK
    return Finding(outcome, found)


def check_map(patient: Patient) -> Finding:
    """Whether draft ids mean the target's ids that d2t says, by what the drafter says where.

    A map is learned from half of the positions: to each draft id the token that most often stands there. If
    it is right far more often than d2t at the other half, d2t is another one than in training.
    """
    said, wanted = _first_step(patient, patient.rows)
    even = np.arange(len(said)) % 2 == 0
    learned = _most_frequent(said[even], wanted[even], len(patient.vocabulary))
    by_map = float((patient.vocabulary.target_ids[said[~even]] == wanted[~even]).mean())
    by_learned = float((learned[said[~even]] == wanted[~even]).mean())
    found = (
        f"{by_map:.1%} of first tokens are right by d2t, {by_learned:.1%} by a map learned from these rows"
    )
    if by_learned > 2 * by_map + MUCH_BETTER:
        return Finding(Outcome.WRONG, f"{found}: d2t is not that of the training")
    return Finding(Outcome.FINE, found)


def check_feedback(patient: Patient) -> Finding:
    """What is fed back between steps is what was in training: normed or not."""
    config = patient.written.config
    other = replace(config, norm_output=not config.norm_output)
    as_said = _later_accuracy(_drafted(patient))
    otherwise = _later_accuracy(evaluate_on(patient, Start(other, patient.vocabulary, patient.start.weights)))
    is_normed = "normed" if config.norm_output else "not normed"
    found = f"later steps are right at {as_said:.1%} with states fed back {is_normed}, as its config says"
    if otherwise > as_said + MUCH_BETTER:
        return Finding(
            Outcome.WRONG,
            f"{found}, and at {otherwise:.1%} the other way: norm_output is not that of the training",
        )
    return Finding(Outcome.FINE, f"{found}; {otherwise:.1%} the other way")


def check_acceptance(patient: Patient) -> Finding:
    """How far its tokens would be accepted on these rows, some of which it may have been trained on."""
    found = _drafted(patient)
    shares = " ".join(f"{share:.1%}" for share in found.acceptance.by_position)
    called = (
        "simulated acceptance length"
        if found.yardstick is Yardstick.ACCEPTANCE_LENGTH
        else "teacher agreement (sampled answers: no acceptance length)"
    )
    words = (
        f"{called} {found.figure:.2f} over {found.acceptance.cycles} cycles, accepted by position {shares}"
    )
    first = found.acceptance.by_position[0]
    if first < _POOR_FIRST:
        return Finding(Outcome.WRONG, f"{words}: it has not learned these states")
    outcome = Outcome.FINE if first >= _GOOD_FIRST else Outcome.WORTH_A_LOOK
    return Finding(outcome, words)


def _written_for(patient: Patient, engine: DraftEngine) -> list[int]:
    is_deepseek = patient.target is not None and is_deepseek_family(patient.tensors.config)
    try:
        return layer_ids_for(engine, patient.shape.layer_ids, target_is_deepseek=is_deepseek)
    except LayerIdError:
        return []


def share_of_first_tokens(patient: Patient, rows: Mapping[int, TrainRow]) -> float:
    """At how many of the positions that it is asked for in these rows its first token is the row's own."""
    said, wanted = _first_step(patient, rows)
    return float((patient.vocabulary.target_ids[said] == wanted).mean())


@dataclass(frozen=True)
class _Rows:
    """Rows that have been read already: a `RowSource`."""

    patient: Patient
    whole: Mapping[int, TrainRow]

    @property
    def rows(self) -> Sequence[RowInfo]:
        return self.patient.source.rows

    def answer(self, row: int) -> NDArray[np.int32]:
        return self.whole[row].token_ids[self.whole[row].mask]

    def read(self, row: int) -> TrainRow:
        return self.whole[row]


def _batches(patient: Patient, rows: Mapping[int, TrainRow], steps: int) -> list[PackedBatch]:
    shape = (len(patient.shape.layer_ids), patient.shape.hidden_size)
    reading = Reading(_Rows(patient, rows), steps, shape)
    groups: list[list[int]] = [[]]
    tokens = 0
    for number, row in rows.items():
        if groups[-1] and tokens + len(row.mask) > _BATCH_TOKENS:
            groups.append([])
            tokens = 0
        groups[-1].append(number)
        tokens += len(row.mask)
    return [reading.batch(group, 0) for group in groups]


def evaluate_on(patient: Patient, start: Start) -> Evaluation:
    """Drafts along the rows that are looked at."""
    rows = tuple(patient.source.rows)
    yardstick = yardstick_for(rows[number] for number in patient.rows)
    evaluator = Evaluator(patient.unroller(start), start.vocabulary, rows, yardstick, DRAFT_TOKENS)
    found = evaluator.evaluate(_batches(patient, patient.rows, DRAFT_TOKENS), _ALONE)
    if not found.acceptance.cycles:
        raise NotLookedAtError("no answer of these rows is long enough for a draft cycle")
    return found


@lru_cache(maxsize=1)
def _drafted(patient: Patient) -> Evaluation:
    """As it is; more than one check asks."""
    return evaluate_on(patient, patient.start)


@torch.no_grad()
def _first_step(
    patient: Patient, rows: Mapping[int, TrainRow]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The draft id that step 0 says, and the row's own token, at each scored position."""
    unroller = patient.unroller(patient.start)
    said, wanted = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
    for batch in _batches(patient, rows, 1):
        unrolled = unroller(batch.packed, batch.layout, [1.0], choose=True)
        scored = batch.layout.scored[0]
        places = batch.layout.query_positions.index[scored.rows.index] + 2
        said.append(unrolled.choices[0].numpy())
        wanted.append(batch.packed.token_ids[places].numpy().astype(np.int64))
    if not sum(map(len, said)):
        raise NotLookedAtError("no answer of these rows is long enough for a draft cycle")
    return np.concatenate(said), np.concatenate(wanted)


def _most_frequent(said: NDArray[np.int64], wanted: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """To each of `size` draft ids the token that most often stands where it is said; -1 where it never is."""
    pairs, counts = np.unique(np.stack([said, wanted], 1), axis=0, return_counts=True)
    learned = np.full(size, -1, np.int64)
    for draft, token in pairs[np.argsort(counts, kind="stable")]:  # the most frequent one comes last
        learned[draft] = token
    return learned


def _later_accuracy(found: Evaluation) -> float:
    hits, asked = sum(found.acceptance.hits[1:]), sum(found.acceptance.asked[1:])
    return hits / asked if asked else 0.0
