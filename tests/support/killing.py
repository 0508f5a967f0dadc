"""A run whose parts are killed at random moments, and how long its server then waits for new work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from tests.support.bed import Bed
from tests.support.kube import is_ready
from tests.support.model_server import prompt_tokens
from tests.support.records_on_disk import assert_complete
from tests.support.waiting import until

IDLE_LIMIT = 30.0
"""Seconds in which two cores start a Python process and it sends its first requests."""
_ROWS = 40
_GENERATORS = 3
_OPERATORS = 2
_SERVER_START = 600  # seconds; a model server starts in one, but not while others use the cores


def run_through_kills(bed: Bed, name: str, seed: int) -> None:
    """One run with servers of its own: generator killed three times, server once, operator twice.

    Every row is there once, the status is right, and the server was idle for seconds only.
    """
    first, second = f"B1_{seed}", f"B2_{seed}"
    run = bed.create_run(
        name,
        datasets=[
            bed.dataset(first, bed.prompts(f"{name}-1.jsonl", _ROWS)),
            bed.dataset(second, bed.prompts(f"{name}-2.jsonl", _ROWS), sampling={"temperature": "0"}),
        ],
        server=bed.server(gpus=8),
        generation={"concurrency": 6},
        sampling={"temperature": "0.8", "maxCompletionTokens": 48},
    )

    idle = Kills(bed, run, seed).carry_out(generator=_GENERATORS, server=1, operator=_OPERATORS)
    status = bed.kube.wait_phase(run, "Succeeded", within=_SERVER_START)

    assert_complete(bed.output(run), {first: _ROWS, second: _ROWS})
    progress = status["progress"]
    assert (progress["done"], progress["total"], progress["errors"]) == (2 * _ROWS, 2 * _ROWS, 0)
    assert status["output"]["records"] == 2 * _ROWS
    # The Job itself replaces a pod that dies while no operator looks: no attempt is spent on that.
    assert _GENERATORS + 1 - _OPERATORS <= status["attempts"][0]["count"] <= _GENERATORS + 1
    until(lambda: not bed.kube.pods(run, "server"), 30, "the servers are gone")
    print(f"seconds until the server had new work after each kill: {idle}")
    assert max(idle) < IDLE_LIMIT


class Kills:
    """Kills for one run that has a server of its own."""

    def __init__(self, bed: Bed, run: str, seed: int) -> None:
        self._bed = bed
        self._run = run
        self._random = random.Random(seed)

    def carry_out(self, *, generator: int, server: int, operator: int) -> list[float]:
        """Kills in random order, each after new records were written.

        Returns:
            For each kill the seconds until the server got new work; after its own death, from when it
            was ready again.
        """
        blows: list[Callable[[], None]] = [
            *[self._kill_generator] * generator,
            *[self._kill_server] * server,
            *[self._kill_operator] * operator,
        ]
        self._random.shuffle(blows)
        return [self._strike(blow) for blow in blows]

    def _strike(self, blow: Callable[[], None]) -> float:
        self._wait_for_records(self._random.randint(2, 5))
        blow()
        return self._seconds_until_new_work()

    def _kill_generator(self) -> None:
        self._bed.kube.kill(self._bed.kube.running_pod(self._run, "worker"))

    def _kill_operator(self) -> None:
        self._bed.kube.kill(self._bed.operator_pod())

    def _kill_server(self) -> None:
        pod = self._server()
        restarts = pod.status.container_statuses[0].restart_count
        self._bed.kube.kill(pod)
        until(lambda: self._is_ready_again(restarts), _SERVER_START, "the server is ready again")

    def _seconds_until_new_work(self) -> float:
        start, url = time.monotonic(), f"http://{self._server().status.pod_ip}:8000"
        before = prompt_tokens(url)
        until(lambda: prompt_tokens(url) > before, 120, "the server gets new work")
        return round(time.monotonic() - start, 1)

    def _wait_for_records(self, count: int) -> None:
        before = self._bed.records_written(self._run)
        until(
            lambda: self._bed.records_written(self._run) >= before + count,
            _SERVER_START,
            lambda: f"{count} more records of {self._run}: {self._bed.kube.status(self._run)}",
        )

    def _is_ready_again(self, restarts: int) -> bool:
        pod = self._server()
        return is_ready(pod) and pod.status.container_statuses[0].restart_count > restarts

    def _server(self) -> Any:
        (pod,) = self._bed.kube.pods(self._run, "server")
        return pod
