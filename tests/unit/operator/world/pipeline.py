"""Several runs in one world, of which each waits for the one before it, and one operator for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.ownership import run_of_worker
from draftmill_operator.observe.pods import rank_of
from draftmill_operator.observe.store import CHILD_KINDS, RUN_KINDS, Kind, Object, Store, run_uid
from draftmill_operator.progress import ProgressPoller
from draftmill_operator.queue import RetryLater
from draftmill_operator.reconcile import Clock, Reconciler
from draftmill_operator.run import DRAFTERTRAIN, EVALUATIONS, EXTRACTRUN, SYNTHRUN, Role, RunKey
from draftmill_operator.settings import OperatorSettings
from draftmill_operator.watch import Intake
from tests.support.synthruns import Manifest
from tests.unit.operator.world.api import NAMESPACE, ApiClient, ApiServer
from tests.unit.operator.world.controllers import Controllers, role
from tests.unit.operator.world.kubelet import Kubelet, is_running
from tests.unit.operator.world.process import done

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SYNTH = RunKey(SYNTHRUN, NAMESPACE, "k25-10k")
EXTRACT = RunKey(EXTRACTRUN, NAMESPACE, "k25-10k")
TRAIN = RunKey(DRAFTERTRAIN, NAMESPACE, "k25-10k")
_MOST_ROUNDS = 30


class Pipeline:
    """Everything around some runs; a step of it is a second."""

    def __init__(self) -> None:
        self.time = START
        self.server = ApiServer(self.now)
        self.controllers = Controllers(self.server)
        self.kubelet = Kubelet(self.server)
        self.client = ApiClient(self.server, lambda _: None)
        self.passes: Counter[RunKey] = Counter()
        """How many passes were made over each run."""
        self.start_operator()

    def now(self) -> datetime:
        """The time of day."""
        return self.time

    def start_operator(self) -> None:
        """A new process: all that it knows is what the server has."""
        self._store, self._called, self._due = Store(), set[RunKey](), dict[RunKey, datetime]()
        self._intake = Intake(self._store, self._called.add)
        self._poller = ProgressPoller(self._store, self._called.add)
        clock = Clock(self.now, monotonic=lambda: self.now().timestamp())
        settings = OperatorSettings(job_image="jobs:1", trainer_image="jobs-train:1")
        kube = Kube(self.client, "operator")
        self._reconciler = Reconciler(settings, self._store, kube, self._poller, clock)
        self._delivered = {kind: len(self.server.events[kind]) for kind in Kind}
        for kind in (*CHILD_KINDS, *RUN_KINDS):
            for raw in self.server.all(kind):
                self._intake.take(kind, None, raw)

    # People ---------------------------------------------------------------------------------------------

    def apply(self, manifest: Manifest) -> None:
        """Someone creates a run."""
        self.server.create(Kind(manifest["kind"]), manifest)

    def delete(self, key: RunKey) -> None:
        """Someone deletes a run."""
        self.server.remove(Kind(key.kind), key.name)

    def edit(self, key: RunKey, **parts: object) -> None:
        """Someone changes the spec of a run."""
        self.server.change(Kind(key.kind), key.name, spec=self._run(key)["spec"] | parts)

    def uid(self, key: RunKey) -> str:
        """A run's uid."""
        return str(self._run(key)["metadata"]["uid"])

    def status(self, key: RunKey) -> Object:
        """A run's status; empty before the first pass."""
        status: Object = self._run(key).get("status") or {}
        return status

    def condition(self, key: RunKey, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        (found,) = [item for item in self.status(key)["conditions"] if item["type"] == kind]
        return found["status"], found["reason"]

    def children(self, key: RunKey) -> list[Object]:
        """Everything that a run holds."""
        uid = self._run(key)["metadata"]["uid"]
        return [raw for kind in CHILD_KINDS for raw in self.server.all(kind) if run_uid(raw) == uid]

    def running(self, key: RunKey, what: Role) -> list[Object]:
        """The run's pods of a role that run, oldest first."""
        uid = self._run(key)["metadata"]["uid"]
        pods = [raw for raw in self.server.all(Kind.POD) if run_uid(raw) == uid and role(raw) == what]
        return [raw for raw in pods if is_running(raw)]

    def _run(self, key: RunKey) -> Object:
        return self.server.objects[Kind(key.kind)][key.name]

    # Time -----------------------------------------------------------------------------------------------

    def until(self, reached: Callable[[], bool], within: int = 200) -> None:
        """All goes well until then."""
        for _ in range(within):
            if reached():
                return
            self.go_on()
        statuses = [raw.get("status") for kind in RUN_KINDS for raw in self.server.all(kind)]
        raise AssertionError(f"not reached: {statuses}")

    def until_phase(self, key: RunKey, phase: str) -> None:
        """All goes well until a run is in a phase."""
        self.until(lambda: self.status(key).get("phase") == phase)

    def until_runs(self, key: RunKey, what: Role) -> Object:
        """All goes well until a pod of a role runs; the pod."""
        self.until(lambda: bool(self.running(key, what)))
        return self.running(key, what)[-1]

    def go_on(self) -> None:
        """One step of everything."""
        self.controllers.step()
        for pod in self.server.all(Kind.POD):
            self.kubelet.step(pod)
        self.settle()
        self.time += timedelta(seconds=1)

    def settle(self) -> None:
        """Everything that happened is told to the operator, and it acts until it waits."""
        for _ in range(_MOST_ROUNDS):
            self._deliver()
            self._poll()
            due = {key for key, when in self._due.items() if when <= self.time}
            ready = self._called | due
            if not ready:
                return
            self._called.clear()
            for key in sorted(ready):
                self._due.pop(key, None)
                self._pass_over(key)
        raise AssertionError("the operator's own writes keep it busy")

    def _pass_over(self, key: RunKey) -> None:
        self.passes[key] += 1
        try:
            delay = done(self._reconciler.reconcile(key))
        except RetryLater:
            delay = 1.0
        if delay == 0:
            self._called.add(key)
        elif delay is not None:
            self._due[key] = self.time + timedelta(seconds=delay)

    def _deliver(self) -> None:
        for kind in Kind:
            events = self.server.events[kind]
            for event in events[self._delivered[kind] :]:
                self._intake.take(kind, event.type, event.raw)
            self._delivered[kind] = len(events)

    def _poll(self) -> None:
        for raw in self._store.all(Kind.POD):
            key = run_of_worker(self._store, raw)
            pod = self.server.objects[Kind.POD].get(raw["metadata"]["name"])
            if key is None or pod is None or not _is_asked(raw):
                continue
            answer = self.kubelet.answer(pod)
            uid, is_worker = raw["metadata"]["uid"], role(raw) == Role.WORKER
            if answer is not None and self._poller.answers.take(
                run_uid(raw), uid, answer, of_worker=is_worker
            ):
                self._called.add(key)


def _is_asked(pod: Object) -> bool:
    return role(pod) in {Role.WORKER, *EVALUATIONS} and rank_of(pod) == 0 and is_running(pod)
