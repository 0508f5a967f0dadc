"""The kinds of run that a world may be about, and how far one of them is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from draftmill_api.v1alpha1.draftertrain import DrafterTrainStatus
from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.observe.store import Kind
from draftmill_operator.run import DRAFTERTRAIN, SYNTHRUN, RunKey
from tests.support.draftertrains import smallest_drafter_train
from tests.support.synthruns import Manifest, smallest_synth_run
from tests.unit.operator.world.api import NAMESPACE
from tests.unit.operator.world.kubelet import ROWS
from tests.unit.operator.world.ranks import STEPS


@dataclass(frozen=True)
class Subject:
    """One of them."""

    key: RunKey
    smallest: Callable[[str], Manifest]
    """A run of a name with nothing but what it needs."""
    status: type[AnyStatus]
    total: int
    """What its progress comes to."""
    kept: Callable[[Any], int]
    """What of its progress is on disk, and never lost."""

    @property
    def kind(self) -> Kind:
        """As the API server has it."""
        return Kind(self.key.kind)


def _training(name: str) -> Manifest:
    """Of a store that is a folder, evaluated at the end."""
    manifest, own = smallest_drafter_train(name), smallest_synth_run("x")["spec"]
    manifest["spec"] |= {
        "from": {"path": "states/k25"},
        "target": own["model"],
        "storage": own["storage"],
        "nodes": 2,
        "evaluation": {"server": {"engine": "VLLM", "image": "vllm:1", "gpus": 8}},
    }
    return manifest


SYNTH: Final = Subject(
    RunKey(SYNTHRUN, NAMESPACE, "k25-10k"),
    smallest_synth_run,
    SynthRunStatus,
    ROWS,
    kept=lambda progress: int(progress.done),
)
TRAIN: Final = Subject(
    RunKey(DRAFTERTRAIN, NAMESPACE, "k25-10k"),
    _training,
    DrafterTrainStatus,
    STEPS,
    kept=lambda progress: int(progress.saved_step),
)
