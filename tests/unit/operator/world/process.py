"""The operator's process: the real pass on a cache of its own, called for as the real queue does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from draftmill_operator.kube.writes import Kube
from draftmill_operator.observe.ownership import run_of_worker
from draftmill_operator.observe.pods import rank_of
from draftmill_operator.observe.store import CHILD_KINDS, RUN_KINDS, Kind, Object, Store
from draftmill_operator.progress import ProgressPoller
from draftmill_operator.queue import FIRST_DELAY, LONGEST_DELAY, RetryLater
from draftmill_operator.reconcile import Clock, Reconciler
from draftmill_operator.run import EVALUATIONS, Role, RunKey
from draftmill_operator.settings import OperatorSettings
from draftmill_operator.watch import Intake
from tests.unit.operator.world.api import ApiClient, ApiServer, Killed
from tests.unit.operator.world.controllers import role
from tests.unit.operator.world.kubelet import Kubelet, is_running
from tests.unit.operator.world.subjects import Subject

T = TypeVar("T")


class Process:
    """One life of the operator, from the first list to its end."""

    def __init__(
        self,
        server: ApiServer,
        client: ApiClient,
        kubelet: Kubelet,
        settings: OperatorSettings,
        now: Callable[[], datetime],
        *,
        subject: Subject,
    ) -> None:
        self._server = server
        self._kubelet = kubelet
        self._now = now
        self._subject = subject
        self._failures = 0
        self.store = Store()
        self.called = True
        self.due: datetime | None = None
        """When the next pass is made without a call."""
        self._intake = Intake(self.store, self._call)
        self._poller = ProgressPoller(self.store, self._call)
        clock = Clock(now, monotonic=lambda: now().timestamp())
        self._reconciler = Reconciler(settings, self.store, Kube(client, "operator"), self._poller, clock)
        self._delivered = {kind: len(server.events[kind]) for kind in Kind}
        for kind in (*CHILD_KINDS, *RUN_KINDS):
            for raw in server.all(kind):
                self._intake.take(kind, None, raw)

    def deliver(self, kind: Kind, most: int) -> None:
        """The watch of a kind brings its next events."""
        start = self._delivered[kind]
        events = self._server.events[kind][start : start + most]
        self._delivered[kind] += len(events)
        for event in events:
            self._intake.take(kind, event.type, event.raw)

    def deliver_all(self) -> None:
        """Every watch brings everything."""
        for kind in Kind:
            self.deliver(kind, len(self._server.events[kind]))

    def replay(self, kind: Kind, pick: int) -> None:
        """A watch brings an event again that it has brought before."""
        if self._delivered[kind]:
            event = self._server.events[kind][pick % self._delivered[kind]]
            self._intake.take(kind, event.type, event.raw)

    def compare(self) -> None:
        """What the cache has and the server has not is forgotten, as the comparison of both does."""
        for kind in Kind:
            there = {raw["metadata"]["uid"] for raw in self._server.all(kind)}
            for raw in self.store.all(kind):
                if raw["metadata"]["uid"] not in there:
                    self._intake.take(kind, "DELETED", raw)

    def poll(self) -> None:
        """Every pod of a worker or an evaluation that the cache knows is asked for its progress."""
        asked = {Role.WORKER, *EVALUATIONS}
        known = [
            raw
            for raw in self.store.all(Kind.POD)
            if role(raw) in asked and rank_of(raw) == 0 and run_of_worker(self.store, raw) is not None
        ]
        runs = {raw["metadata"]["uid"] for raw in self.store.all(self._subject.kind)}
        self._poller.answers.keep_only({raw["metadata"]["uid"] for raw in known}, runs)
        for raw in known:
            pod = self._server.objects[Kind.POD].get(raw["metadata"]["name"])
            answer = self._kubelet.answer(pod) if pod is not None and is_running(raw) else None
            run = self.store.run(self._subject.key)
            if answer is not None and run is not None:
                uid, is_worker = run["metadata"]["uid"], role(raw) == Role.WORKER
                if self._poller.answers.take(uid, raw["metadata"]["uid"], answer, of_worker=is_worker):
                    self._call(self._subject.key)

    @property
    def has_failed(self) -> bool:
        """Whether the last pass ended in an error."""
        return self._failures > 0

    @property
    def is_called(self) -> bool:
        """Whether a pass is to be made now."""
        return self.called or (self.due is not None and self.due <= self._now())

    def make_pass(self) -> float | None:
        """One pass; the seconds until the next, as the queue takes them.

        Raises:
            Killed: the process ended in it.
        """
        self.called, self.due = False, None
        try:
            delay = done(self._reconciler.reconcile(self._subject.key))
        except RetryLater:
            self._failures += 1
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 1, 10))
        else:
            self._failures = 0
        return delay

    def _call(self, key: RunKey) -> None:
        assert key == self._subject.key
        self.called = True


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waits for something")


__all__ = ["Killed", "Object", "Process", "done"]
