"""What holds at every moment of a run's life, whatever happens to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from unittest.mock import patch

from draftmill_api import names as api_names
from draftmill_api.base import seconds
from draftmill_api.v1alpha1.runstatus import AnyStatus, ClockHand, RunClock
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator import reconcile
from draftmill_operator.decide.clock import elapsed
from draftmill_operator.decide.ended import ended, terminal_condition
from draftmill_operator.decide.rules import decide, deciding
from draftmill_operator.decide.types import Decision, Rule, Situation, Wanted
from draftmill_operator.observe.pods import parse_time, rank_of
from draftmill_operator.observe.store import Kind, Object, Store, controller_uid, run_uid
from draftmill_operator.run import Role
from tests.unit.operator.world.api import ApiServer
from tests.unit.operator.world.controllers import has_ended, role
from tests.unit.operator.world.kubelet import share_of
from tests.unit.operator.world.subjects import Subject

CHILDREN = (Kind.JOB, Kind.DEPLOYMENT, Kind.SERVICE, Kind.CONFIG_MAP)
CLOCK_STANDS = {Phase.SUSPENDING, Phase.SUSPENDED, Phase.PAUSED, Phase.SUCCEEDED, Phase.FAILED}


class Transition(NamedTuple):
    """A change of the phase."""

    before: Phase | None
    after: Phase
    rule: Rule


class Invariants:
    """Watches the server and the operator; an AssertionError says what was broken."""

    def __init__(self, server: ApiServer, now: Callable[[], datetime], subject: Subject) -> None:
        self._server = server
        self._subject = subject
        self._now = now
        self._store = Store()
        self._cached: Object | None = None
        """The run as the operator knew it when its pass began."""
        self._statuses = 0
        self._uid = ""
        self._attempts: dict[str, list[int]] = defaultdict(list)
        """Numbers of the attempts that were started, by worker, in their order."""
        self.transitions: list[Transition] = []
        """Every change of the phase that was recorded."""
        self._rule: Rule = ended
        self._last = subject.status()
        self._active = 0.0

    def new_process(self, store: Store) -> None:
        """The operator was started; this is its cache."""
        self._store = store

    @contextmanager
    def during_pass(self) -> Iterator[None]:
        """What is created now is the operator's doing."""
        self._cached = next(iter(self._store.all(self._subject.kind)), None)
        try:
            with patch.object(reconcile, "decide", self._decide):
                yield
        finally:
            self._look_at_statuses()

    def _decide(self, situation: Situation) -> Decision:
        """The real decision; what it may not want is checked, and which rule it comes from is noted."""
        self._rule, _ = deciding(situation)
        decision = decide(situation)
        over = terminal_condition(situation.run.status) is not None
        if over or decision.failed or decision.completed or situation.spec.suspend:
            wanted = replace(decision.wanted, keep_servers=False)
            assert wanted == Wanted(), f"{wanted} by {self._rule.__name__}"
        return decision

    def created(self, child: Object) -> None:
        """The operator has created a child."""
        self._look_at_statuses()
        if controller_uid(child) != self._uid:
            return  # its run has just been deleted, which the operator has not heard
        status, cached = self._status(), next(iter(self._store.all(self._subject.kind)), None)
        name = f"{child['kind']} {child['metadata']['name']}"
        assert terminal_condition(status) is None, f"{name} is created after the end"
        assert cached is None or not cached["spec"].get("suspend"), f"{name} is created while suspended"
        if child["kind"] == Kind.JOB and role(child) == Role.WORKER:
            worker, attempt = _attempt(child)
            numbers = self._attempts[worker]
            assert attempt > max(numbers, default=0), f"attempts of worker {worker}: {numbers}, {attempt}"
            numbers.append(attempt)

    def removed_by_hand(self, job: Object) -> None:
        """Someone removes a Job. Of an attempt that could not be recorded before, nobody knows any more."""
        if role(job) != Role.WORKER:
            return
        worker, attempt = _attempt(job)
        recorded = next((one.count for one in self._last.attempts if str(one.worker) == worker), 0)
        if attempt > recorded and attempt in self._attempts[worker]:
            self._attempts[worker].remove(attempt)

    def after_pass(self, delay: float | None) -> None:
        """The operator has made a pass and will look again after so many seconds."""
        status, run = self._status(), self._run()
        if status.phase is Phase.SUSPENDED and run is not None and _is_acted_on(run):
            assert delay is None, f"a suspended run is looked at again after {delay} s"
        end = status.completion_time
        if end is not None and run is not None and self._store.all(self._subject.kind):
            self._servers_are_gone(run, status)

    def writers(self) -> None:
        """No two pods may write the same rows, and all alive were started for the same number of workers."""
        pods = [pod for pod in self._living_pods() if role(pod) == Role.WORKER]
        shares = [(share_of(pod), rank_of(pod)) for pod in pods]
        names = [pod["metadata"]["name"] for pod in pods]
        assert len(set(shares)) == len(shares), f"several pods may write the same rows: {names} {shares}"
        makers = {(share_of(pod), controller_uid(pod)) for pod in pods}
        assert len(makers) == len({share for share, _ in shares}), f"two attempts are alive: {names}"
        jobs = self._jobs(pods)
        hashes = {job["metadata"]["annotations"][api_names.ANNOTATION_WORKERS_HASH] for job in jobs}
        assert len(hashes) < 2, f"pods of different sets of workers are alive: {names} {shares}"

    def _living_pods(self) -> list[Object]:
        """Pods of the run that may run something. The folder's lock keeps those of a deleted run away."""
        run = self._run()
        uid = run["metadata"]["uid"] if run is not None else ""
        return [pod for pod in self._server.all(Kind.POD) if run_uid(pod) == uid and not has_ended(pod)]

    def _jobs(self, pods: list[Object]) -> list[Object]:
        owners = {controller_uid(pod) for pod in pods}
        events = self._server.events[Kind.JOB]
        return [event.raw for event in events if event.raw["metadata"]["uid"] in owners]

    def _look_at_statuses(self) -> None:
        events = self._server.events[self._subject.kind]
        for event in events[self._statuses :]:
            if event.raw["metadata"]["uid"] != self._uid:
                self._begin_anew(event.raw["metadata"]["uid"])
            raw = event.raw.get("status") or {}
            status = self._subject.status.model_validate(raw)
            assert not raw or status.to_json() == raw, f"{raw} is read as {status}"
            if status != self._last:
                self._look_at(status, event.raw)
        self._statuses = len(events)

    def _begin_anew(self, uid: str) -> None:
        """A run of the same name was created."""
        self._uid, self._last, self._active = uid, self._subject.status(), 0.0
        self._attempts.clear()

    def _look_at(self, status: AnyStatus, run: Object) -> None:
        last, self._last = self._last, status
        if status.phase is not last.phase:
            assert status.phase is not None
            self.transitions.append(Transition(last.phase, status.phase, self._rule))
        assert len({(one.type) for one in status.conditions}) == len(status.conditions)
        before, after = terminal_condition(last), terminal_condition(status)
        if before is not None:
            assert after == before, f"the end is withdrawn: {before} -> {after}"
        ends = [one for one in status.conditions if one.type in {"Complete", "Failed"}]
        assert len(ends) == (status.completion_time is not None), ends
        assert (after is not None) == (status.completion_time is not None)
        for field in ("start_time", "completion_time"):
            known = getattr(last, field)
            assert known is None or getattr(status, field) == known, f"{field} moves"
        limit = run["spec"].get("backoffLimit", 6)
        for record in status.attempts:
            assert record.without_progress <= limit + 1, record
        if status.progress is not None:
            assert status.progress.total == self._subject.total, f"progress of a part only: {status.progress}"
            kept = self._subject.kept
            fallen = last.progress is not None and kept(status.progress) < kept(last.progress)
            assert not fallen, f"{last.progress} -> {status.progress}"
        if status.phase is Phase.SUSPENDED:
            left = [pod["metadata"]["name"] for pod in self._living_pods()]
            assert left == [], f"Suspended while pods are left: {left}"
        self._look_at_clock(status.clock or RunClock(), status.phase)

    def _look_at_clock(self, clock: RunClock, phase: Phase | None) -> None:
        active = elapsed(clock, ClockHand.ACTIVE, self._now())
        assert active > self._active - 1, f"the active clock runs backwards: {self._active} -> {active}"
        assert phase not in CLOCK_STANDS or clock.running is None, f"a clock runs while {phase}"
        self._active = max(active, self._active)

    def _servers_are_gone(self, run: Object, status: AnyStatus) -> None:
        server: dict[str, Any] = run["spec"].get("server") or {}
        good = status.phase is Phase.SUCCEEDED
        kept = server.get("keepAfterSuccess" if good else "keepAfterFailure", "0s")
        assert status.completion_time is not None
        age = (self._now() - parse_time(status.completion_time)).total_seconds()
        cached = self._cached
        knew = cached is not None and cached["metadata"]["generation"] == run["metadata"]["generation"]
        if knew and age >= seconds(kept) and (cached or {}).get("status", {}).get("completionTime"):
            known = {raw["metadata"]["uid"] for raw in self._store.all(Kind.DEPLOYMENT)}
            there = [
                raw
                for raw in self._server.owned(Kind.DEPLOYMENT, run["metadata"]["uid"])
                if "deletionTimestamp" not in raw["metadata"] and raw["metadata"]["uid"] in known
            ]
            assert there == [], f"servers outlive the run's end by {age} s"

    def _run(self) -> Object | None:
        return next(iter(self._server.all(self._subject.kind)), None)

    def _status(self) -> AnyStatus:
        return self._subject.status.model_validate((self._run() or {}).get("status") or {})


def _is_acted_on(run: Object) -> bool:
    """Whether the status is an answer to the spec as it is now."""
    seen: int = run["status"]["observedGeneration"]
    return seen == int(run["metadata"]["generation"])


def _attempt(job: Object) -> tuple[str, int]:
    """The worker and the number of an attempt."""
    labels = job["metadata"]["labels"]
    return labels[api_names.LABEL_WORKER], int(labels[api_names.LABEL_ATTEMPT])
