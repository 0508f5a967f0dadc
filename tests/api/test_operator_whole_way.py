"""The operator on a real API server, from `kubectl apply` to Complete; the test plays the pods."""

from __future__ import annotations

import pytest

from tests.api.operator_bed import Bed
from tests.support.played import answer, finish_message, plan_message, progress_server, worker_message
from tests.support.waiting import until

pytestmark = pytest.mark.api


def test_a_run_goes_from_plan_to_complete(bed: Bed) -> None:
    run = bed.create("whole")

    bed.kube.wait_phase("whole", "Planning", within=30)
    run.end("plan", message=plan_message(100))
    bed.kube.wait_phase("whole", "Starting", within=30)
    assert bed.condition("whole", "Planned")["message"] == "100 rows in 1 datasets"
    assert bed.kube.pods("whole", "worker") == []

    run.make_ready("server")
    with progress_server(answer(10, 100)) as progress:
        run.make_ready("worker", progress.address)
        bed.kube.wait_phase("whole", "Running", within=30)
        status = bed.kube.wait("whole", lambda s: s.get("progress", {}).get("done") == 10, within=30)
        assert status["servers"] == {"ready": 1, "wanted": 1, "summary": "1/1"}
        assert status["progress"]["tokensPerSecond"] == 1200
        run.end("worker", message=worker_message(100, 100))

    bed.kube.wait_phase("whole", "Finishing", within=30)
    run.end("finish", message=finish_message(100))
    status = bed.kube.wait_phase("whole", "Succeeded", within=30)
    assert status["progress"]["done"] == 100
    assert "tokensPerSecond" not in status["progress"]
    assert status["output"]["manifest"] == "prepared/manifest.json"
    assert status["observedGeneration"] == 1
    assert bed.condition("whole", "Complete")["status"] == "True"
    until(lambda: not bed.deployments("whole"), 30, "no servers")


def test_with_given_endpoints_the_worker_starts_right_after_the_plan(bed: Bed) -> None:
    endpoints = [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}]
    run = bed.create("given", endpoints=endpoints)
    run.end("plan", message=plan_message(5))
    run.make_ready("worker")
    assert run.config()["endpoints"] == endpoints
    assert bed.condition("given", "ServersReady")["reason"] == "GivenEndpoints"
    assert bed.deployments("given") == []
