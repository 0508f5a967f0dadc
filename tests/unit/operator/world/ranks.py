"""The trainer's pods: ranks that take a step together or none, and checkpoints on the volume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from draftmill_api import names as api_names
from draftmill_api.exitcode import ExitCode
from draftmill_api.progress import Progress, TerminationMessage, WorkerState
from draftmill_api.trainjob import TrainJobConfig
from draftmill_operator.observe.pods import rank_of
from draftmill_operator.observe.store import Kind, Object, controller_uid
from draftmill_operator.run import DRAFTERTRAIN, Role
from tests.support.draftertrains import (
    train_evaluation,
    train_finish_message,
    train_plan_message,
    trainer_message,
    trainer_says,
)
from tests.unit.operator.world.controllers import exit_code, has_ended, role

if TYPE_CHECKING:
    from tests.unit.operator.world.kubelet import Kubelet

STEPS: Final = 6
_SAVED_EVERY: Final = 2


@dataclass
class Training:
    """What the ranks have come to."""

    step: int = 0
    saved: int = 0
    """Step of the newest checkpoint on the volume."""
    evaluated: list[str] = field(default_factory=list)
    """Servers whose answers are on the volume, in the order in which they came."""

    def work(self, pod: Object, kubelet: Kubelet) -> None:
        """What a container of a DrafterTrain does next."""
        match role(pod):
            case Role.PLAN:
                kubelet.end(pod, 0, train_plan_message(STEPS))
            case Role.FINISH:
                assert self.saved == STEPS, f"finish runs after step {self.saved}"
                config = TrainJobConfig.model_validate_json(kubelet.config_text(pod))
                assert config.evaluation is None or {"plain", "drafting"} <= set(self.evaluated)
                evaluation = train_evaluation() if config.evaluation is not None else None
                kubelet.end(pod, 0, train_finish_message(STEPS, evaluation))
            case Role.EVALUATE_PLAIN | Role.EVALUATE_DRAFT:
                assert self.saved == STEPS, f"evaluated after step {self.saved}"
                self.evaluated.append(pod["spec"]["containers"][0]["args"][-1])
                kubelet.end(pod, 0, TerminationMessage())
            case _:
                self._step(pod, kubelet)

    def stop(self, pod: Object, kubelet: Kubelet) -> None:
        """SIGTERM came: ranks agree to save, which they cannot once one of them is lost."""
        if not self._all_run(_ranks(pod, kubelet), kubelet):
            kubelet.end(pod, ExitCode.FAILED, "connection reset by another rank")
            return
        self.saved = max(self.saved, self.step)
        kubelet.end(pod, ExitCode.INTERRUPTED, trainer_message(self.step, STEPS))

    def answer(self, pod: Object, kubelet: Kubelet) -> Progress:
        """What the first rank says."""
        container = kubelet.containers[pod["metadata"]["uid"]]
        said = {"state": container.state, "attempt": container.attempt}
        return trainer_says(self.step, STEPS, self.saved, **said)

    def _step(self, pod: Object, kubelet: Kubelet) -> None:
        container, ranks = kubelet.containers[pod["metadata"]["uid"]], _ranks(pod, kubelet)
        if any(has_ended(each) and exit_code(each) != ExitCode.DONE for each in ranks):
            kubelet.end(pod, ExitCode.FAILED, "connection reset by another rank")
        elif container.state is not WorkerState.RUNNING:
            container.state = WorkerState.RUNNING
            self.step = self.saved
        elif self.saved == STEPS:
            kubelet.end(pod, 0, trainer_message(STEPS, STEPS))
        elif rank_of(pod) == 0 and self._all_run(ranks, kubelet):
            self.step += 1
            self.saved = max(self.saved, self.step - self.step % _SAVED_EVERY)

    def _all_run(self, ranks: list[Object], kubelet: Kubelet) -> bool:
        running = [each["metadata"]["uid"] for each in ranks if not has_ended(each)]
        states = [kubelet.containers.get(uid) for uid in running]
        at_work = [each for each in states if each is not None and each.state is WorkerState.RUNNING]
        return len(at_work) == nodes_of(ranks[0])


def is_training(pod: Object) -> bool:
    """Whether it is a pod of a DrafterTrain."""
    return bool(pod["metadata"]["labels"][api_names.LABEL_KIND] == DRAFTERTRAIN.lower())


def nodes_of(pod: Object) -> int:
    """How many ranks its environment speaks of."""
    environment = pod["spec"]["containers"][0]["env"]
    (nodes,) = [item["value"] for item in environment if item["name"] == "PET_NNODES"]
    return int(nodes)


def _ranks(pod: Object, kubelet: Kubelet) -> list[Object]:
    return kubelet.server.owned(Kind.POD, controller_uid(pod) or "")
