"""Which layers' states are stored. Pure but for reading a drafter's config.

Ids are of the "entering layer" convention: id i is the residual stream before layer i, and id L, the number
of layers, is the one after the last layer, before the final norm. The other convention in use, "output of
layer", names the same tensors with ids that are smaller by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from draftmill_api.extractjob import JobLayers
from draftmill_jobs.errors import JobRefusedError

_KEY: Final = "eagle_aux_hidden_state_layer_ids"
_CONVENTION: Final = 'in the "entering layer" convention (id i is the residual stream before layer i)'


def layer_ids(wanted: JobLayers, layers: int) -> list[int]:
    """The ids to store for a model of so many layers: those that are wanted, and L.

    Raises:
        JobRefusedError: They do not name layers of this model, or the drafter does not name any.
    """
    if wanted.ids is not None:
        return checked(wanted.ids, layers, "layers.ids")
    if wanted.from_drafter is not None:
        return _of_drafter(Path(wanted.from_drafter), layers)
    return checked(default_ids(layers), layers, f"the default for a model of {layers} layers")


def default_ids(layers: int) -> list[int]:
    """What EAGLE-3 drafters use unless told otherwise."""
    return [2, layers // 2, layers - 3]


def checked(ids: Sequence[int], layers: int, source: str) -> list[int]:
    """The ids with L added.

    Args:
        ids: As they were given.
        layers: Of the model.
        source: Who gave them, for the sentence.

    Raises:
        JobRefusedError: An id is out of range, or they do not increase.
    """
    outside = [each for each in ids if not 0 <= each < layers]
    if outside:
        raise _refused(
            f"{source} has {list(ids)}: {outside[0]} is out of range; {_CONVENTION} a model of {layers} "
            f"layers has the ids 0 to {layers - 1}, and {layers}, what leaves its last layer, is always added"
        )
    if any(second <= first for first, second in pairwise(ids)):
        raise _refused(
            f"{source} has {list(ids)}, which does not increase; name each layer once, the lowest first, "
            f"{_CONVENTION}"
        )
    return [*ids, layers]


def _of_drafter(folder: Path, layers: int) -> list[int]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _refused(
            f"layers.fromDrafter: cannot read {path}: {error}; give the folder of a drafter, or layers.ids"
        ) from error
    ids = _ids_in(config)
    if ids is None:
        raise _refused(
            f"layers.fromDrafter: {path} has no list of numbers at {_KEY} nor at eagle_config.{_KEY}; "
            "give the layers that the drafter was trained on as layers.ids"
        )
    if ids == [each - 1 for each in default_ids(layers)]:
        raise _refused(
            f'layers.fromDrafter: {path} has {ids}, the default of the "output of layer" convention; '
            f"give the same layers as layers.ids: {default_ids(layers)}, {_CONVENTION}"
        )
    return checked(ids, layers, f"layers.fromDrafter: {path}")


def _ids_in(config: Any) -> list[int] | None:
    """A flat checkpoint has the ids in `eagle_config`, one of speculators at the top."""
    if not isinstance(config, dict):
        return None
    nested = config.get("eagle_config")
    for place in (nested if isinstance(nested, dict) else {}, config):
        ids = place.get(_KEY)
        if isinstance(ids, list) and ids and all(type(each) is int for each in ids):
            return ids
    return None


def _refused(sentence: str) -> JobRefusedError:
    return JobRefusedError("LayersInvalid", sentence)
