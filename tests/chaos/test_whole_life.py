"""One run lives through everything that its owner and its cluster may do to it, and loses nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from draftmill_api.record import prompt_key, row_id
from draftmill_dev import release
from tests.support.bed import BEYOND_CONTEXT, Bed
from tests.support.kube import is_ready
from tests.support.records_on_disk import lines
from tests.support.waiting import until

pytestmark = [pytest.mark.life, pytest.mark.timeout(2400)]

ROWS, TOO_LONG = 400, range(300, 330)
"""Rows of the dataset, and those of them whose prompt is longer than the server's context."""
SERVER_START = 600.0  # seconds; a model server starts in one, but not while others use the cores
LIVE = 60.0  # seconds from an edit to the generator that works with it: 10 on a machine that is not busy
POLICY = {"warnPercent": 2, "pausePercent": 4, "window": 50}


class Life:
    """What is done to one run."""

    def __init__(self, bed: Bed, name: str) -> None:
        self._bed = bed
        self._kube = bed.kube
        self.name = name

    @property
    def status(self) -> dict[str, Any]:
        return self._kube.status(self.name)

    def edit(self, **spec: Any) -> None:
        self._kube.patch_run(self.name, {"spec": spec})

    def wait_for_records(self, more: int = 3) -> None:
        before = self._bed.records_written(self.name)
        until(
            lambda: self._bed.records_written(self.name) >= before + more,
            SERVER_START,
            lambda: f"{more} more records: {json.dumps(self.status, indent=1)}",
        )

    def wait(self, phase: str, within: float = SERVER_START) -> dict[str, Any]:
        return self._kube.wait_phase(self.name, phase, within=within)

    def wait_servers(self, summary: str) -> None:
        self._kube.wait(
            self.name, lambda s: s.get("servers", {}).get("summary") == summary, SERVER_START, summary
        )

    def set_concurrency(self, value: int) -> None:
        """Edits it while the generator works, which has it in force within seconds."""
        self.edit(generation={"concurrency": value})
        self._kube.wait(
            self.name,
            lambda s: s["configHash"] == self._bed.config_hash_with(self.name, value),
            LIVE,
            "the config in force",
        )

    def suspend_and_resume(self) -> None:
        self.edit(suspend=True)
        self.wait("Suspended", within=180)
        left = self._kube.core.list_namespaced_pod(
            self._kube.namespace, label_selector=f"draftmill.dev/run={self.name}"
        ).items
        assert [pod.metadata.name for pod in left if pod.status.phase not in {"Succeeded", "Failed"}] == []
        self.edit(suspend=False)
        self.wait_for_records()

    def scale_servers_up_and_down(self) -> None:
        self.edit(server={"replicas": 2})
        self.wait_servers("2/2")
        servers = {pod.metadata.name for pod in self._kube.pods(self.name, "server")}
        until(lambda: servers <= self._answering(), 240, f"answers of {servers}")
        self.edit(server={"replicas": 1})
        self.wait_servers("1/1")
        self.wait_for_records()

    def use_three_workers(self) -> None:
        self.edit(generation={"workers": 3, "concurrency": 3})
        until(
            lambda: len(list(self._bed.output(self.name).glob("*/raw_responses-[012].jsonl"))) == 3,
            180,
            lambda: f"three part files: {self.status}",
        )
        assert len(self._kube.pods(self.name, "worker")) == 3
        self.wait_for_records()

    def lose_the_server(self) -> None:
        (pod,) = self._kube.pods(self.name, "server")
        self._kube.core.delete_namespaced_pod(pod.metadata.name, self._kube.namespace)
        until(lambda: self._another_server_is_ready(pod.metadata.uid), SERVER_START, "another server")
        self.wait_for_records()

    def lose_a_worker_while_no_node_takes_pods(self) -> None:
        (node,) = self._kube.core.list_node().items
        self._kube.core.patch_node(node.metadata.name, {"spec": {"unschedulable": True}})
        self._kube.kill(self._kube.running_pod(self.name, "worker"))
        self._kube.wait(self.name, lambda s: "unschedulable" in s.get("message", ""), 60, "cordoned node")
        self._kube.core.patch_node(node.metadata.name, {"spec": {"unschedulable": None}})
        self._kube.wait(self.name, lambda s: not s.get("reason"), 120, "work after the cordon")
        self.wait_for_records()

    def lose_the_operator(self) -> None:
        self._kube.kill(self._bed.operator_pod())
        self.wait_for_records()

    def live_through_an_upgrade(self) -> None:
        before, operator = self._pods(), self._bed.operator_pod().metadata.uid
        new = {"name": "NEW_DEFAULT", "value": "1"}
        server = [*release.mounted_environment()["server"]["env"], new]
        self._bed.upgrade({"podDefaults": {"job": {"env": [new]}, "server": {"env": server}}})
        self.wait_for_records(10)
        assert self._bed.operator_pod().metadata.uid != operator, "the operator is another one"
        assert self._pods() == before, "an upgrade replaces no pod of a run that is under way"

    def trip_the_error_policy_and_raise_it(self) -> None:
        status = self.wait("Paused")
        assert status["reason"] == "ErrorPolicyTripped"
        self.edit(generation={"errorPolicy": {"pausePercent": 100}})
        self._kube.wait(self.name, lambda s: s.get("phase") != "Paused", LIVE, "resumed")

    def _another_server_is_ready(self, uid: str) -> bool:
        pods = self._kube.pods(self.name, "server")
        return any(is_ready(pod) and pod.metadata.uid != uid for pod in pods)

    def _pods(self) -> set[str]:
        roles = ("server", "worker")
        return {pod.metadata.uid for role in roles for pod in self._kube.pods(self.name, role)}

    def _answering(self) -> set[str]:
        return {record["server"] for record in lines_so_far(self._bed, self.name)}


def lines_so_far(bed: Bed, run: str) -> Iterator[dict[str, Any]]:
    """Whole records of a run that is being written."""
    for file in bed.output(run).glob("*/raw_responses*.jsonl"):
        text, _, _ = file.read_text().rpartition("\n")
        yield from map(json.loads, text.splitlines())


@pytest.fixture
def prompts(bed: Bed) -> str:
    path = bed.data / "prompts" / "life.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        for question in questions():
            file.write(json.dumps({"prompt": question}) + "\n")
    return str(path.relative_to(bed.data))


def questions() -> Iterator[str]:
    for number in range(ROWS):
        words = BEYOND_CONTEXT if number in TOO_LONG else ""
        yield f"{words}What is {number} times {number + 7}?"


def test_a_run_lives_through_everything_and_each_row_is_there_once(bed: Bed, prompts: str) -> None:
    life = Life(
        bed,
        bed.create_run(
            "whole-life",
            datasets=[bed.dataset("B1", prompts)],
            server=bed.server(gpus=4),
            generation={"concurrency": 1, "errorPolicy": POLICY},
            sampling={"temperature": "0", "maxCompletionTokens": 48},
        ),
    )
    life.wait("Running")
    deeds: dict[str, Callable[[], None]] = {
        "work": life.wait_for_records,
        "more at once": lambda: life.set_concurrency(2),
        "suspend and resume": life.suspend_and_resume,
        "two servers and one": life.scale_servers_up_and_down,
        "three workers": life.use_three_workers,
        "the server is lost": life.lose_the_server,
        "a worker dies, the node is cordoned": life.lose_a_worker_while_no_node_takes_pods,
        "the operator dies": life.lose_the_operator,
        "the chart is upgraded": life.live_through_an_upgrade,
        "suspend and resume again": life.suspend_and_resume,
        "many at once": lambda: life.set_concurrency(24),
        "the error policy trips and is raised": life.trip_the_error_policy_and_raise_it,
    }
    for name, deed in deeds.items():
        began = time.monotonic()
        deed()
        print(f"{name:38} {time.monotonic() - began:6.1f} s, {bed.records_written(life.name)} records")

    status = life.wait("Succeeded")

    records, letters = list(lines(bed.output(life.name))), dead_letters(bed, life.name)
    ids = [record["id"] for record in records] + [letter["id"] for letter in letters]
    assert sorted(ids) == sorted(
        row_id(prompt_key([{"role": "user", "content": question}], None, {}), 0) for question in questions()
    )
    assert len(letters) == len(TOO_LONG)
    counts = status["progress"]
    assert (counts["done"], counts["errors"], counts["total"]) == (ROWS - len(TOO_LONG), len(TOO_LONG), ROWS)
    until(lambda: not bed.kube.pods(life.name, "server"), 60, "the servers are gone")


def dead_letters(bed: Bed, run: str) -> list[dict[str, Any]]:
    return list(lines(bed.output(run), "dead_letter*.jsonl"))
