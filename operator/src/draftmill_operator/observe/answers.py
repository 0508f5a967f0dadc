"""What pods said last."""

from __future__ import annotations

from collections.abc import Mapping

from draftmill_api.progress import Progress


class Answers:
    """The last answer of each pod that is asked, and of each worker over all its pods."""

    def __init__(self) -> None:
        self._of_pods: dict[str, Progress] = {}
        self._of_runs: dict[str, dict[str, Progress]] = {}

    def take(self, run_uid: str, pod_uid: str, answer: Progress, *, of_worker: bool = True) -> bool:
        """Keep an answer; False if the pod has said just that before."""
        if self._of_pods.get(pod_uid) == answer:
            return False
        self._of_pods[pod_uid] = answer
        if of_worker:
            self._of_runs.setdefault(run_uid, {})[answer.worker] = answer
        return True

    def of_pod(self, uid: str) -> Progress | None:
        """What a pod said last."""
        return self._of_pods.get(uid)

    def of_run(self, uid: str) -> Mapping[str, Progress]:
        """What the run's workers said last, by their share: `0/3`."""
        return dict(self._of_runs.get(uid, {}))

    def keep_only(self, pods: set[str], runs: set[str]) -> None:
        """Forget all pods and runs but these."""
        for uid in self._of_pods.keys() - pods:
            del self._of_pods[uid]
        for uid in self._of_runs.keys() - runs:
            del self._of_runs[uid]
