"""The target's final norm and output head, to prove that the last stored state is what its logits come from.

Only these two tensors are read, by the ends of their names, never the model.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.store.tensors import TensorFileError, TensorPlace, parse_header
from draftmill_jobs.store.values import to_float32

_CHUNK_BYTES: Final = 32 << 20  # of the head, in float32
_EPS: Final = ("rms_norm_eps", "norm_eps", "layer_norm_epsilon")
_NUMPY: Final = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}

_NEEDED: Final = (
    "the teacher self-check needs final norm and output head in model.path, in safetensors of 16 or 32 bits"
)

FULL_AGREEMENT, HALF_AGREEMENT = 0.999, 0.97
"""Share of positions at which the argmax must agree: with states in float32, in 16 bits."""
FULL_TIE, HALF_TIE = 1e-3, 2.0**-5
"""How far apart two logits of a near tie are at most, as a part of the position's largest magnitude.

In 16 bits a state has a relative error of 2^-9 for each value and layer, and the server rounds its logits to
steps of up to 2^-7 of their size; 2^-5 is four such steps. Within one step it has two equal logits, and takes
either token: that is no miss. (SmolLM2 in bfloat16, its logits around 30: another one at 4.5 % of positions.)
"""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the head, on stored states, gives the server's likeliest token.

    Attributes:
        positions: That were compared.
        rounded: Of them, those with another token whose logit the server's rounding makes equal.
        misses: Of them, those with another token otherwise.
        ties: Of the misses, those that are near ties.
        example: The miss with the largest distance, in words.
    """

    positions: int = 0
    misses: int = 0
    ties: int = 0
    rounded: int = 0
    worst: float = 0.0
    example: str = ""

    def __add__(self, other: Agreement) -> Agreement:
        worse = max(self, other, key=lambda each: each.worst)
        return Agreement(
            self.positions + other.positions,
            self.misses + other.misses,
            self.ties + other.ties,
            self.rounded + other.rounded,
            worse.worst,
            worse.example,
        )

    @property
    def share(self) -> float:
        """Of the positions that agree."""
        return 1.0 - self.misses / max(1, self.positions)

    def is_enough(self, wanted: float) -> bool:
        """Whether at most the part that `wanted` leaves misses, and always one may, and all are near ties."""
        allowed = max(1, int(self.positions * (1.0 - wanted)))
        return self.misses <= allowed and self.ties == self.misses


@dataclass(frozen=True, slots=True)
class TeacherHead:
    """Final norm and output head of a target.

    Attributes:
        normalise: Of `float32[T, hidden]`.
        weight: `[vocabulary, hidden]`: float32, float16, or bfloat16 as uint16.
    """

    normalise: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    weight: NDArray[Any]

    def compare(self, last: NDArray[np.float32], likeliest: NDArray[np.int32], *, is_half: bool) -> Agreement:
        """Compares at some positions.

        Args:
            last: `float32[T, hidden]`, states after the last layer, before the final norm.
            likeliest: `int32[T]`, the server's.
            is_half: The states were computed in 16 bits.
        """
        normed = self.normalise(last)
        best = np.full(len(last), -np.inf, np.float32)
        ours = np.zeros(len(last), np.int64)
        theirs = np.full(len(last), -np.inf, np.float32)
        largest = np.zeros(len(last), np.float32)
        step = max(1, _CHUNK_BYTES // (4 * self.weight.shape[1]))
        for start in range(0, len(self.weight), step):
            logits = normed @ _float32(self.weight[start : start + step]).T  # [T, step]
            top = logits.argmax(axis=1)
            value = logits[np.arange(len(last)), top]
            ours = np.where(value > best, top + start, ours)
            best = np.maximum(best, value)
            largest = np.maximum(largest, np.abs(logits).max(axis=1))
            inside = (likeliest >= start) & (likeliest < start + logits.shape[1])
            theirs[inside] = logits[inside, likeliest[inside] - start]
        distance = (best - theirs) / largest
        differs = ours != likeliest
        rounded = differs & (best - theirs <= _step_of(best)) if is_half else np.zeros_like(differs)
        missed = np.flatnonzero(differs & ~rounded)
        if not missed.size:
            return Agreement(len(last), rounded=int(rounded.sum()))
        tie = HALF_TIE if is_half else FULL_TIE
        at = int(missed[distance[missed].argmax()])
        return Agreement(
            positions=len(last),
            misses=len(missed),
            ties=int((distance[missed] <= tie).sum()),
            rounded=int(rounded.sum()),
            worst=float(distance[at]),
            example=f"token {ours[at]} with logit {best[at]:.3f} here, and token {likeliest[at]} on the "
            f"server, which has {theirs[at]:.3f} here",
        )


def load_head(folder: Path, model: ModelFacts) -> TeacherHead:
    """Finds norm and head in a model's folder.

    Raises:
        JobRefusedError: They are not there, or in a form that cannot be read.
    """
    config = json.loads((folder / "config.json").read_bytes())
    text = {**config, **(config.get("text_config") or {})}
    tensors = _Tensors(folder)
    width = (model.hidden_size,)
    norm = tensors.one(lambda name, place: _is_final_norm(name) and place.shape == width, "final norm")

    def is_matrix(name: str, place: TensorPlace, end: str) -> bool:
        return name.endswith(end) and place.shape[1:] == width

    matrix = partial(is_matrix, end="lm_head.weight")
    if text.get("tie_word_embeddings") or not tensors.has(matrix):
        matrix = partial(is_matrix, end="embed_tokens.weight")
    head = tensors.one(matrix, "output head")
    return TeacherHead(_norm(text, _float32(norm), folder), head[: model.vocabulary_size])


def _is_final_norm(name: str) -> bool:
    inside = ("layers.", "vision", "visual", "audio", "mtp")
    return name.endswith(("norm.weight", "final_layernorm.weight")) and not any(
        each in name for each in inside
    )


def _norm(
    text: dict[str, Any], weight: NDArray[np.float32], folder: Path
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """RMS norm; Gemma's weights are around zero, and with `layer_norm_eps` the mean is subtracted too."""
    if str(text.get("model_type", "")).startswith("gemma"):
        weight = weight + np.float32(1)
    is_centred = "layer_norm_eps" in text and not any(name in text for name in _EPS)
    eps = next((text[name] for name in (*_EPS, "layer_norm_eps") if name in text), None)
    if eps is None:
        raise _unreadable(f"{folder}/config.json names no epsilon of its norms ({', '.join(_EPS)})")

    def normalise(states: NDArray[np.float32]) -> NDArray[np.float32]:
        values = states - states.mean(axis=-1, keepdims=True) if is_centred else states
        size = np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + np.float32(eps))
        normed: NDArray[np.float32] = values / size * weight
        return normed

    return normalise


class _Tensors:
    """The tensors of a folder of safetensors files, by name; nothing is read but what is taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[str, tuple[mmap.mmap, TensorPlace]] = {}
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise _unreadable(f"{folder} has no safetensors files")
        for path in paths:
            try:
                with path.open("rb") as file:
                    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                places = parse_header(memoryview(memory), len(memory))
            except (OSError, ValueError, TensorFileError) as error:
                raise _unreadable(f"{path}: {error}") from error
            self._places |= {name: (memory, place) for name, place in places.items()}

    def has(self, matches: Callable[[str, TensorPlace], bool]) -> bool:
        return any(matches(name, place) for name, (_, place) in self._places.items())

    def one(self, matches: Callable[[str, TensorPlace], bool], what: str) -> NDArray[Any]:
        found = [name for name, (_, place) in self._places.items() if matches(name, place)]
        if len(found) != 1:
            names = ", ".join(found[:3]) or "none"
            raise _unreadable(f"{self._folder} must have one tensor that is its {what}, and has {names}")
        memory, place = self._places[found[0]]
        if place.dtype not in _NUMPY:
            raise _unreadable(f"{self._folder}: {found[0]}, its {what}, is stored as {place.dtype}")
        return np.ndarray(place.shape, _NUMPY[place.dtype], memory, place.begin)


def _step_of(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """What lies between a number and the next of bfloat16."""
    _, exponent = np.frexp(logits)
    step: NDArray[np.float32] = np.ldexp(np.float32(1), exponent - 8)
    return step


def _float32(values: NDArray[Any]) -> NDArray[np.float32]:
    return values.astype(np.float32) if values.dtype == np.float16 else to_float32(values)


def _unreadable(sentence: str) -> JobRefusedError:
    return JobRefusedError("TeacherUnreadable", f"{sentence}; {_NEEDED}")
