"""A run's whole world in memory: server, controllers, nodes, the operator, people, and time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from draftmill_operator.observe.store import Kind, Object
from draftmill_operator.settings import OperatorSettings
from tests.unit.operator.world.api import ApiClient, ApiServer, Killed
from tests.unit.operator.world.controllers import Controllers
from tests.unit.operator.world.invariants import Invariants
from tests.unit.operator.world.kubelet import Kubelet
from tests.unit.operator.world.process import Process
from tests.unit.operator.world.subjects import SYNTH, Subject

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SETTLED_AFTER = 30
"""Passes without anything new from outside, after which a run that still asks for one never settles."""


class World:
    """Everything around one run; whatever happens in it is checked at once."""

    def __init__(self, *prefixes: str, subject: Subject = SYNTH, **spec: Any) -> None:
        """Create the run, with these parts of the spec in place of the smallest one's; None removes one."""
        self.time = START
        self.server = ApiServer(self.now)
        self.controllers = Controllers(self.server)
        self.kubelet = Kubelet(self.server)
        self.prefixes = list(prefixes)
        self.subject = subject
        manifest = subject.smallest(subject.key.name)
        parts = manifest["spec"] | spec
        manifest["spec"] = {name: part for name, part in parts.items() if part is not None}
        self.server.create(self.subject.kind, manifest)
        self.checks = Invariants(self.server, self.now, subject)
        self.client = ApiClient(self.server, self.checks.created)
        self.start_operator()

    def now(self) -> datetime:
        """The time of day; it never jumps."""
        return self.time

    def pass_time(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self.time += timedelta(seconds=seconds)

    # The operator ---------------------------------------------------------------------------------------

    def start_operator(self) -> None:
        """A new process: all that it knows is what the server has."""
        self.client.fault = None
        settings = OperatorSettings(
            job_image="jobs:1", trainer_image="jobs-train:1", host_path_prefixes=self.prefixes
        )
        self.process = Process(
            self.server, self.client, self.kubelet, settings, self.now, subject=self.subject
        )
        self.checks.new_process(self.process.store)

    def operate(self) -> None:
        """The operator makes the passes that it is called for, until it waits."""
        for _ in range(SETTLED_AFTER):
            if not self.process.is_called:
                return
            self.make_pass()
        raise AssertionError(f"{SETTLED_AFTER} passes, and it still calls for one: {self.status}")

    def make_pass(self) -> None:
        """One pass, called for or not."""
        before = self.run
        try:
            with self.checks.during_pass():
                delay = self.process.make_pass()
        except Killed:
            self.start_operator()
            return
        if delay is not None:
            self.process.due = self.time + timedelta(seconds=delay)
        if not self.process.has_failed:
            self.checks.after_pass(delay)
        if self.run is before and delay == 0:
            raise AssertionError(f"a pass changed nothing and asks for another at once: {self.status}")

    def settle(self) -> None:
        """Everything that happened is told to the operator, and it acts until it waits."""
        if self.process.has_failed and self.process.due is not None:
            self.time = max(self.time, self.process.due)
        for _ in range(SETTLED_AFTER):
            self.process.deliver_all()
            self.process.poll()
            if not self.process.is_called:
                return
            self.operate()
        raise AssertionError(f"the operator's own writes keep it busy: {self.status}")

    def look_twice(self) -> None:
        """A pass on what has not changed writes nothing."""
        self.client.fault = None
        self.process.compare()
        self.settle()
        before, status = len(self.client.writes), self.status
        self.make_pass()
        written = self.client.writes[before:]
        assert written == [], f"a pass on an unchanged run writes {written}: {status} -> {self.status}"

    # The run --------------------------------------------------------------------------------------------

    @property
    def run(self) -> Object | None:
        """The run as the server has it."""
        return self.server.objects[self.subject.kind].get(self.subject.key.name)

    @property
    def status(self) -> Object:
        """Its status."""
        return (self.run or {}).get("status") or {}

    @property
    def phase(self) -> str:
        """Its phase, as it was last recorded; empty before the first pass."""
        return str(self.status.get("phase", ""))

    @property
    def is_over(self) -> bool:
        """It has ended, or was removed after its end."""
        return self.run is None or "completionTime" in self.status

    def recreate(self) -> None:
        """Someone deletes the run and creates it again; its files stay."""
        old = self.run
        if old is not None:
            self.server.remove(self.subject.kind, self.subject.key.name)
            fresh = {key: old[key] for key in ("apiVersion", "kind", "spec")}
            self.server.create(self.subject.kind, fresh | {"metadata": {"name": self.subject.key.name}})

    def edit(self, **parts: Any) -> None:
        """Someone changes the spec; None removes a part."""
        if self.run is not None:
            spec = self.run["spec"] | parts
            kept = {name: part for name, part in spec.items() if part is not None}
            self.server.change(self.subject.kind, self.subject.key.name, spec=kept)

    def edit_generation(self, **parts: Any) -> None:
        """Someone changes a part of spec.generation."""
        if self.run is not None:
            self.edit(generation=self.run["spec"].get("generation", {}) | parts)

    def edit_server(self, **parts: Any) -> None:
        """Someone changes a part of spec.server, if there is one."""
        if self.run is not None and "server" in self.run["spec"]:
            self.edit(server=self.run["spec"]["server"] | parts)

    # Time going well ------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """One step of everything, when nothing goes wrong; a second."""
        self.controllers.step()
        for pod in self.server.all(Kind.POD):
            self.kubelet.step(pod)
        self.checks.writers()
        self.process.deliver_all()
        self.process.poll()
        self.operate()
        self.pass_time(1)

    def turn_benign(self) -> None:
        """Nobody hinders the run any more, and what has happened to it so far has been noticed."""
        self.client.fault = None
        self.prefixes = ["/"]
        self.controllers.refusal = ""
        self.start_operator()
        self.edit(suspend=None, activeDeadline=None, pendingDeadline=None)
        if self.subject is SYNTH:
            self.edit(resumeToken="go-on")
            self.edit_generation(errorPolicy={"pausePercent": 100})
        for _ in range(2):
            self.controllers.step()
            self.settle()

    def ends(self, within: int) -> None:
        """From here on all goes well, and the run succeeds."""
        for _ in range(within):
            if self.is_over:
                return
            before = self._footprint()
            self.go_on()
            if before == self._footprint() and not self.process.called:
                due = self.process.due
                assert due is not None, f"nothing happens any more: {self.status}"
                self.time = max(self.time, due)
        raise AssertionError(f"no end after {within} steps: {self.status}")

    def _footprint(self) -> tuple[object, ...]:
        """Another one whenever anything but the time has changed."""
        events = sum(map(len, self.server.events.values()))
        states = [container.state for container in self.kubelet.containers.values()]
        training = self.kubelet.training
        done = len(self.kubelet.rows), training.step, training.saved, len(training.evaluated)
        return events, done, states
