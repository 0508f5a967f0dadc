"""Scheduler, kubelet and containers, one step of one pod at a time, for good and for ill."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from draftmill_api import names as api_names
from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import SynthJobConfig, config_hash
from draftmill_api.progress import Progress, TerminationMessage, WorkerState
from draftmill_api.v1alpha1.status import DatasetProgress
from draftmill_operator.observe.store import Kind, Object, run_uid
from draftmill_operator.render.config import CONFIG_KEY
from draftmill_operator.run import EVALUATIONS, EXTRACTRUN, Role
from tests.support.extractruns import (
    extract_finish_message,
    extract_plan_message,
    extract_progress,
    extract_worker_message,
)
from tests.support.played import counts, finish_message, plan_message, refusal_message, worker_message
from tests.unit.operator.world.api import ApiServer
from tests.unit.operator.world.controllers import has_ended, role
from tests.unit.operator.world.ranks import Training, is_training

ROWS: Final = 12
NODES: Final = ("node-1", "node-2")
DATASET: Final = "B1_glaive"
EVALUATION_SAYS: Final = "50 % of 64 prompts, 4 at a time"
RECENT_ERRORS: Final = 60
"""Failed rows in the window of a worker whose error policy trips: more than half of the smallest one."""


@dataclass
class Container:
    """What runs in a worker pod."""

    index: int
    workers: int
    attempt: int
    state: WorkerState = WorkerState.WAITING
    resume_token: str = ""
    """That was in force when it paused."""
    config_hash: str = ""


@dataclass
class Kubelet:
    """The nodes, and the volume that outlives every pod."""

    server: ApiServer
    rows: set[int] = field(default_factory=set)
    """Rows with a record on disk."""
    containers: dict[str, Container] = field(default_factory=dict)
    """Of worker pods that have been started, by the pod's uid."""
    states: set[int] = field(default_factory=set)
    """Rows whose hidden states are on disk."""
    training: Training = field(default_factory=Training)
    mounted: dict[str, str] = field(default_factory=dict)
    """Text of the job config in the pods of each run, by its uid; it outlives its ConfigMap."""

    def step(self, pod: Object) -> None:
        """What happens to this pod next when nothing goes wrong."""
        if "deletionTimestamp" in pod["metadata"]:
            self._go(pod)
        elif has_ended(pod):
            return
        elif "nodeName" not in pod["spec"]:
            self._place(pod)
        elif "containerStatuses" not in pod["status"] or _is_waiting(pod):
            if role(pod) == Role.SERVER or self.config_text(pod):
                self._start(pod)
        elif not _is_ready(pod):
            self._set(pod, conditions=[_condition("Ready", "True"), _condition("ContainersReady", "True")])
        else:
            self._work(pod)

    def end(self, pod: Object, code: int, message: TerminationMessage | str = "") -> None:
        """The container ends; one of a server is started again."""
        if not is_running(pod):
            return
        text = message if isinstance(message, str) else json.dumps(message.to_json())
        terminated = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "message": text,
            "finishedAt": self.server.time(),
        }
        if role(pod) == Role.SERVER and "deletionTimestamp" not in pod["metadata"]:
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
            status = _container(pod, waiting) | {"lastState": {"terminated": terminated}, "restartCount": 3}
            self._set(pod, conditions=[_condition("Ready", "False")], containerStatuses=[status])
            return
        if (
            code
            and pod["spec"].get("restartPolicy") == "OnFailure"
            and "deletionTimestamp" not in pod["metadata"]
        ):
            self._start_again(pod, terminated)
            return
        self._set(
            pod,
            phase="Succeeded" if code == 0 else "Failed",
            conditions=[_condition("Ready", "False"), *_disruption(pod)],
            containerStatuses=[_container(pod, {"terminated": terminated})],
        )

    def refuse(self, pod: Object) -> None:
        """The container finds that no attempt can succeed."""
        if role(pod) != Role.SERVER:
            self.end(pod, ExitCode.CONFIGURATION, refusal_message("StorageNotWritable", "no"))

    def reject(self, pod: Object) -> None:
        """The node refuses the pod before any container."""
        if "nodeName" in pod["spec"] and "containerStatuses" not in pod["status"] and not has_ended(pod):
            self._set(pod, phase="Failed", reason="UnexpectedAdmissionError", message="no healthy devices")

    def pull_in_vain(self, pod: Object) -> None:
        """The image of a placed pod cannot be pulled; the next time, its node backs off."""
        if "nodeName" not in pod["spec"] or has_ended(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        words = {"reason": "ErrImagePull", "message": "not found"}
        if "containerStatuses" in pod["status"]:
            if not _is_waiting(pod) or "lastState" in pod["status"]["containerStatuses"][0]:
                return
            words = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}
        self._set(pod, containerStatuses=[_container(pod, {"waiting": words})])

    def crash_server(self, pod: Object, times: int) -> None:
        """The server beside the pod's own container ended so often before it answered."""
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "CUDA out of memory"}}
        loop = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        server = {"name": api_names.SERVER_CONTAINER, "state": loop, "lastState": ended}
        self._set(
            pod,
            phase="Pending",
            initContainerStatuses=[server | {"restartCount": times, "started": False, "ready": False}],
            containerStatuses=[_container(pod, {"waiting": {"reason": "PodInitializing"}})],
        )

    def evict(self, pod: Object) -> None:
        """The pod is asked to go for another one's sake."""
        if not has_ended(pod):
            conditions = [*(pod["status"].get("conditions") or []), _condition("DisruptionTarget", "True")]
            self._set(pod, conditions=conditions)
            self.server.mark_deleted(Kind.POD, pod["metadata"]["name"], grace=60)

    def fall_silent(self, pod: Object) -> None:
        """The node controller hears nothing of the pod's node, or hears of it again."""
        if is_running(pod) and "deletionTimestamp" not in pod["metadata"]:
            ready = "False" if _is_ready(pod) else "True"
            self._set(pod, conditions=[_condition("Ready", ready), _condition("ContainersReady", "True")])

    def trip(self, pod: Object, *, at_the_end: bool) -> None:
        """The worker's error policy pauses it, perhaps with its last rows."""
        container = self.containers.get(pod["metadata"]["uid"])
        if container is not None and is_running(pod) and container.state is WorkerState.RUNNING:
            config = self._config(pod)
            if not _is_allowed(config):
                container.state, container.resume_token = WorkerState.PAUSED, config.resume_token
                self.rows |= self._share(container) if at_the_end else set()

    def answer(self, pod: Object) -> Progress | None:
        """What the pod says at `/progress`."""
        if role(pod) in EVALUATIONS and is_running(pod):
            return Progress(state=WorkerState.RUNNING, config_hash="c", message=EVALUATION_SAYS)
        container = self.containers.get(pod["metadata"]["uid"])
        if container is None or not is_running(pod):
            return None
        share = self._share(container)
        if is_training(pod):
            return self.training.answer(pod, self)
        if is_extracting(pod):
            return self._answer_of_extractor(container)
        done = len(share & self.rows)
        counted = counts(done, len(share))
        paused = container.state is WorkerState.PAUSED
        return Progress(
            worker=f"{container.index}/{container.workers}",
            attempt=container.attempt,
            state=container.state,
            config_hash=container.config_hash,
            progress=counted.model_copy(update={"in_flight": 1, "requests_per_second": "1"}),
            datasets=[DatasetProgress(name=DATASET, done=done, ok=done, total=len(share))],
            message="too many rows failed" if paused else "",
            recent_errors=RECENT_ERRORS if paused else 0,
        )

    def _answer_of_extractor(self, container: Container) -> Progress:
        share = self._share(container)
        return Progress(
            worker=f"{container.index}/{container.workers}",
            attempt=container.attempt,
            state=container.state,
            config_hash=container.config_hash,
            extraction=extract_progress(len(share & self.states), len(share)),
        )

    def _work(self, pod: Object) -> None:
        if is_training(pod):
            self.training.work(pod, self)
            return
        if is_extracting(pod):
            self._extract(pod)
            return
        match role(pod):
            case Role.PLAN:
                self.end(pod, 0, plan_message(ROWS))
            case Role.FINISH:
                assert len(self.rows) == ROWS, f"finish runs while only {self.rows} are on disk"
                self.end(pod, 0, finish_message(ROWS))
            case Role.WORKER:
                self._generate(pod, self.containers[pod["metadata"]["uid"]])
            case _:
                return

    def _extract(self, pod: Object) -> None:
        match role(pod):
            case Role.PLAN:
                self.end(pod, 0, extract_plan_message(ROWS))
            case Role.FINISH:
                assert len(self.states) == ROWS, f"finish runs while only {self.states} are on disk"
                self.end(pod, 0, extract_finish_message(ROWS))
            case _:
                container = self.containers[pod["metadata"]["uid"]]
                container.config_hash = config_hash(self.config_text(pod))
                left = sorted(self._share(container) - self.states)
                match container.state:
                    case WorkerState.WAITING:
                        container.state = WorkerState.PREFLIGHT
                    case WorkerState.PREFLIGHT:
                        container.state = WorkerState.RUNNING
                    case _ if left:
                        self.states.add(left[0])
                    case _:
                        self.end(pod, 0, self._last_words(pod, container))

    def _generate(self, pod: Object, container: Container) -> None:
        config = self._config(pod)
        container.config_hash = config_hash(self.config_text(pod))
        share = self._share(container)
        left = sorted(share - self.rows)
        match container.state:
            case WorkerState.WAITING if config.endpoints:
                container.state = WorkerState.PREFLIGHT
            case WorkerState.PREFLIGHT:
                container.state = WorkerState.RUNNING
            case WorkerState.PAUSED if _is_allowed(config) or config.resume_token != container.resume_token:
                container.state = WorkerState.RUNNING
            case WorkerState.RUNNING if left and config.endpoints:
                self.rows.add(left[0])
            case WorkerState.RUNNING if not left:
                container.state = WorkerState.DONE
            case WorkerState.DONE:
                self.end(pod, 0, worker_message(len(share), len(share)))
            case _:
                return

    def _go(self, pod: Object) -> None:
        """SIGTERM, then the end of the container, then the pod is gone."""
        container = self.containers.get(pod["metadata"]["uid"])
        if not is_running(pod):
            self.server.remove(Kind.POD, pod["metadata"]["name"])
        elif container is None:
            self.end(pod, 143)
        elif is_training(pod):
            self.training.stop(pod, self)
        else:
            done = self._share(container) <= (self.states if is_extracting(pod) else self.rows)
            code = ExitCode.DONE if done else ExitCode.INTERRUPTED
            self.end(pod, code, self._last_words(pod, container))

    def _last_words(self, pod: Object, container: Container) -> TerminationMessage:
        share = self._share(container)
        if is_extracting(pod):
            return extract_worker_message(len(share & self.states), len(share))
        return worker_message(len(share & self.rows), len(share))

    def _place(self, pod: Object) -> None:
        """Onto the first node that the pod's affinity allows; it says so when there is none."""
        fitting = [node for node in NODES if node not in avoided(pod["spec"])]
        if not fitting:
            words = {"reason": "Unschedulable", "message": f"0/{len(NODES)} nodes are available"}
            self._set(pod, conditions=[_condition("PodScheduled", "False") | words])
            return
        name = pod["metadata"]["name"]
        self.server.change(
            Kind.POD,
            name,
            spec=pod["spec"] | {"nodeName": fitting[0]},
            status=pod["status"] | {"conditions": [_condition("PodScheduled", "True")]},
        )

    def _start(self, pod: Object) -> None:
        running = {"running": {"startedAt": self.server.time()}}
        first = [
            {"name": each["name"], "started": True, "ready": True, "state": running}
            for each in pod["spec"].get("initContainers", [])
        ]
        self._set(
            pod,
            phase="Running",
            podIP="10.0.0.7",
            containerStatuses=[_container(pod, running)],
            **({"initContainerStatuses": first} if first else {}),
        )
        if role(pod) == Role.WORKER:
            labels, environment = pod["metadata"]["labels"], _environment(pod)
            index, _, workers = environment[api_names.WORKER_VARIABLE].partition("/")
            self.containers[pod["metadata"]["uid"]] = Container(
                int(index), int(workers), int(labels[api_names.LABEL_ATTEMPT])
            )

    def _start_again(self, pod: Object, terminated: Object) -> None:
        """The kubelet starts the container again in its pod."""
        running = {"running": {"startedAt": self.server.time()}}
        times = pod["status"]["containerStatuses"][0]["restartCount"] + 1
        status = _container(pod, running) | {"lastState": {"terminated": terminated}, "restartCount": times}
        self._set(pod, containerStatuses=[status])
        self.containers[pod["metadata"]["uid"]].state = WorkerState.WAITING

    def _share(self, container: Container) -> set[int]:
        return {row for row in range(ROWS) if row % container.workers == container.index}

    def _config(self, pod: Object) -> SynthJobConfig:
        return SynthJobConfig.model_validate_json(self.config_text(pod))

    def config_text(self, pod: Object) -> str:
        """The job config that the pod has mounted."""
        uid = run_uid(pod)
        for raw in self.server.all(Kind.CONFIG_MAP):
            if role(raw) == Role.CONFIG and run_uid(raw) == uid:
                self.mounted[uid] = raw["data"][CONFIG_KEY]
        return self.mounted.get(uid, "")

    def _set(self, pod: Object, **status: Any) -> None:
        self.server.change(Kind.POD, pod["metadata"]["name"], status=pod["status"] | status)


def is_extracting(pod: Object) -> bool:
    """Whether it is a pod of an ExtractRun."""
    return bool(pod["metadata"]["labels"][api_names.LABEL_KIND] == EXTRACTRUN.lower())


def is_running(pod: Object) -> bool:
    """Whether its container runs."""
    statuses = pod["status"].get("containerStatuses") or []
    return bool(statuses) and "running" in statuses[0]["state"] and not has_ended(pod)


def share_of(pod: Object) -> str:
    """Which rows a worker pod may write: `0/3`."""
    return _environment(pod)[api_names.WORKER_VARIABLE]


def _environment(pod: Object) -> dict[str, str]:
    variables = pod["spec"]["containers"][0]["env"]
    return {item["name"]: item["value"] for item in variables if "value" in item}


def _is_allowed(config: SynthJobConfig) -> bool:
    policy = config.generation.error_policy
    return policy.pause_percent * policy.window >= RECENT_ERRORS * 100


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any((item["type"], item["status"]) == ("Ready", "True") for item in conditions)


def _is_waiting(pod: Object) -> bool:
    return "waiting" in pod["status"]["containerStatuses"][0]["state"]


def _disruption(pod: Object) -> list[Object]:
    conditions = pod["status"].get("conditions") or []
    return [item for item in conditions if item["type"] == "DisruptionTarget"]


def avoided(spec: Object) -> set[str]:
    """Names of the nodes that a pod's affinity keeps it away from."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    expressions = [item for term in terms or [] for item in term.get("matchExpressions") or []]
    return {name for item in expressions if item["operator"] == "NotIn" for name in item["values"]}


def _container(pod: Object, state: Object) -> Object:
    name = api_names.container_of(role(pod))
    return {"name": name, "state": state, "restartCount": 0, "ready": "running" in state}


def _condition(kind: str, status: str) -> Object:
    return {"type": kind, "status": status}
