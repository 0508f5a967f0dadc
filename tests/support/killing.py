"""A run whose parts are killed at random moments, and how long its server then had nothing to do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from tests.support.bed import Bed
from tests.support.gpu_idle import BusyWatch
from tests.support.kube import is_ready
from tests.support.records_on_disk import assert_complete
from tests.support.waiting import until

IDLE_LIMIT = 20.0
"""Seconds; two loaded cores start a Python process and send its first requests in less."""
_ROWS = 40


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

    idle = Kills(bed, run, seed).carry_out(generator=3, server=1, operator=2)
    status = bed.kube.wait_phase(run, "Succeeded", within=240)

    assert_complete(bed.output(run), {first: _ROWS, second: _ROWS})
    progress = status["progress"]
    assert (progress["done"], progress["total"], progress["errors"]) == (2 * _ROWS, 2 * _ROWS, 0)
    assert status["output"]["records"] == 2 * _ROWS
    assert status["attempts"]["count"] == 4
    until(lambda: not bed.kube.pods(run, "server"), 30, "the servers are gone")
    print(f"idle after each kill, in seconds: {idle}")
    assert max(idle) < IDLE_LIMIT


class Kills:
    """Kills for one run that has servers of its own."""

    def __init__(self, bed: Bed, run: str, seed: int) -> None:
        self._bed = bed
        self._run = run
        self._random = random.Random(seed)

    def carry_out(self, *, generator: int, server: int, operator: int) -> list[float]:
        """Kills in random order, each after new records were written.

        Returns:
            Seconds without a running request after each kill of a generator or an operator, and after
            the server was ready again.
        """
        blows: list[Callable[[BusyWatch], float]] = [
            *[self._kill_generator] * generator,
            *[self._kill_server] * server,
            *[self._kill_operator] * operator,
        ]
        self._random.shuffle(blows)
        with BusyWatch(self._server_url) as watch:
            return [self._strike(blow, watch) for blow in blows]

    def _strike(self, blow: Callable[[BusyWatch], float], watch: BusyWatch) -> float:
        self._wait_for_records(self._random.randint(2, 5))
        return blow(watch)

    def _kill_generator(self, watch: BusyWatch) -> float:
        pod = self._bed.kube.running_pod(self._run, "worker")
        self._bed.kube.kill(pod)
        moment = time.monotonic()
        until(lambda: self._replaced(pod), 60, "another generator runs")
        return self._idle_after(moment, watch)

    def _kill_operator(self, watch: BusyWatch) -> float:
        pod = self._bed.operator_pod()
        restarts = pod.status.container_statuses[0].restart_count
        self._bed.kube.kill(pod)
        moment = time.monotonic()
        until(
            lambda: self._bed.operator_pod().status.container_statuses[0].restart_count > restarts,
            60,
            "the operator is started again",
        )
        return self._idle_after(moment, watch)

    def _kill_server(self, watch: BusyWatch) -> float:
        pod = self._server()
        assert pod is not None
        restarts = pod.status.container_statuses[0].restart_count
        self._bed.kube.kill(pod)
        until(lambda: self._restarted(restarts), 180, "the server is ready again")
        return self._idle_after(time.monotonic(), watch)

    def _idle_after(self, moment: float, watch: BusyWatch) -> float:
        until(lambda: watch.busy_since(moment + 1), 90, "requests run again")
        return round(watch.idle_after(moment), 1)

    def _wait_for_records(self, count: int) -> None:
        before = self._bed.records_written(self._run)
        until(
            lambda: self._bed.records_written(self._run) >= before + count,
            180,
            lambda: f"{count} more records of {self._run}: {self._bed.kube.status(self._run)}",
        )

    def _replaced(self, old: Any) -> bool:
        pods = self._bed.kube.pods(self._run, "worker")
        return any(pod.metadata.uid != old.metadata.uid for pod in pods)

    def _restarted(self, restarts: int) -> bool:
        pod = self._server()
        return bool(pod and is_ready(pod) and pod.status.container_statuses[0].restart_count > restarts)

    def _server(self) -> Any:
        return next(iter(self._bed.kube.pods(self._run, "server")), None)

    def _server_url(self) -> str | None:
        pod = self._server()
        return f"http://{pod.status.pod_ip}:8000" if pod and pod.status.pod_ip else None
