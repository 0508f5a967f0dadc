"""The kinds of run that this operator knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from draftmill_operator.kinds.base import AnyKind
from draftmill_operator.kinds.draftertrain import DrafterTrainKind
from draftmill_operator.kinds.extractrun import ExtractRunKind
from draftmill_operator.kinds.synthrun import SynthRunKind

KINDS: Final[Mapping[str, AnyKind]] = {
    kind.name: kind for kind in (SynthRunKind(), ExtractRunKind(), DrafterTrainKind())
}
"""Each kind by its name."""
