"""What is left of a run after its end, for how long, and that nothing of it starts again."""

from __future__ import annotations

import pytest
from kubernetes import client

from tests.api.operator_bed import Bed
from tests.support.played import Player, finish_message, plan_message, refusal_message, worker_message
from tests.support.waiting import until

pytestmark = pytest.mark.api

GIVEN = [{"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}]
SERVER = {"engine": "SGLang", "image": "lmsysorg/sglang:v0.5.23"}


def to_the_end(run: Player) -> None:
    run.to_running()
    run.end("worker", message=worker_message(100, 100))
    run.end("finish", message=finish_message(100))
    run.kube.wait_phase(run.run, "Succeeded", within=60)


def test_a_run_and_its_children_are_removed_so_long_after_its_end(bed: Bed) -> None:
    done = bed.create("done", endpoints=GIVEN, ttlAfterFinished="4s")
    failed = bed.create("undone", endpoints=GIVEN, ttlAfterFinished="4s")
    kept = bed.create("kept", endpoints=GIVEN)
    for run in (done, kept):
        run.end("plan", message=plan_message(100))
        run.end("worker", message=worker_message(100, 100))
        run.end("finish", message=finish_message(100))
    failed.end("plan", exit_code=2, message=refusal_message("ModelNotFound", "no /models/kimi"))
    gone = ("done", "undone")
    until(lambda: not any(map(bed.kube.run, gone)), 60, "both runs are gone")
    until(lambda: not any(map(bed.kube.children, gone)), 60, "nothing is left of them")
    bed.kube.wait_phase("kept", "Succeeded", within=60)
    bed.edit("kept", ttlAfterFinished="1s")
    until(lambda: bed.kube.run("kept") is None, 60, "a time that is given later counts too")


def test_servers_are_kept_after_success_for_their_time_and_then_removed(bed: Bed) -> None:
    run = bed.create("warm", server=SERVER | {"keepAfterSuccess": "1h"})
    to_the_end(run)
    bed.make_pass("warm")
    (deployment,) = bed.deployments("warm")
    assert deployment.metadata.deletion_timestamp is None
    assert bed.kube.status("warm")["servers"]["summary"] == "1/1"
    bed.edit("warm", server={"keepAfterSuccess": "1s"})
    until(lambda: not bed.deployments("warm"), 60, "no servers")
    bed.kube.wait("warm", lambda s: "servers" not in s, within=60)
    assert bed.kube.status("warm")["phase"] == "Succeeded"


def test_servers_are_kept_after_failure_and_go_by_themselves(bed: Bed) -> None:
    run = bed.create("hot", server=SERVER | {"keepAfterFailure": "5s", "keepAfterSuccess": "1h"})
    run.to_running()
    (deployment,) = bed.deployments("hot")
    run.end("worker", exit_code=2, message=refusal_message("PreflightFailed", "token 5 is not 6"))
    status = bed.kube.wait("hot", lambda s: s["phase"] == "Failed", within=60)
    (still,) = bed.deployments("hot")
    assert still.metadata.uid == deployment.metadata.uid
    until(lambda: not bed.deployments("hot"), 60, "no servers")
    assert bed.kube.status("hot")["completionTime"] == status["completionTime"]


def test_what_is_deleted_by_hand_after_the_end_is_not_made_again(own_bed: Bed) -> None:
    run = own_bed.create("over", server=SERVER | {"keepAfterSuccess": "1h"})
    to_the_end(run)
    status = own_bed.kube.status("over")
    delete_children(own_bed, "over")
    until(lambda: own_bed.kube.children("over") == [], 60, lambda: str(own_bed.kube.children("over")))
    own_bed.kube.wait("over", lambda s: "servers" not in s, within=60)
    own_bed.make_pass("over")
    own_bed.operator.kill()
    own_bed.operator.start()
    writes = len(own_bed.writes())
    own_bed.make_pass("over")
    own_bed.edit("over", restart="again", resumeToken="again", generation={"workers": 3})
    own_bed.kube.wait("over", lambda s: s["observedGeneration"] == 2, within=60)
    assert own_bed.kube.children("over") == []
    assert {line["objectRef"].get("subresource") for line in own_bed.writes()[writes:]} == {"status"}
    changed = {"servers", "observedGeneration"}
    assert without(own_bed.kube.status("over"), changed) == without(status, changed)


def test_a_failed_run_is_tried_again_by_creating_it_anew(bed: Bed) -> None:
    run = bed.create("retried", endpoints=GIVEN)
    run.end("plan", exit_code=2, message=refusal_message("PromptsNotFound", "no /data/p.jsonl"))
    bed.kube.wait("retried", lambda s: s.get("phase") == "Failed", within=60)
    bed.kube.delete_run("retried")
    until(lambda: bed.kube.run("retried") is None, 60, "the run is gone")
    again = bed.create("retried", endpoints=GIVEN)
    again.end("plan", message=plan_message(100))
    again.pod("worker")
    status = bed.kube.wait("retried", lambda s: s.get("attempts"), within=30)
    assert status["attempts"][0]["count"] == 1


def delete_children(bed: Bed, name: str) -> None:
    """All of them, as a hand does."""
    kube = bed.kube
    everything = {"label_selector": f"draftmill.dev/run={name}"}
    background = client.V1DeleteOptions(propagation_policy="Background")
    kube.batch.delete_collection_namespaced_job(kube.namespace, body=background, **everything)
    kube.apps.delete_collection_namespaced_deployment(kube.namespace, body=background, **everything)
    kube.core.delete_collection_namespaced_service(kube.namespace, **everything)
    kube.core.delete_collection_namespaced_config_map(kube.namespace, **everything)


def without(status: dict[str, object], fields: set[str]) -> dict[str, object]:
    return {name: value for name, value in status.items() if name not in fields}
