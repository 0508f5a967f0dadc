"""Runs that use a server which someone else started: one real vLLM for all of them."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.bed import MODEL_NAME, Bed
from tests.support.records_on_disk import assert_complete, lines
from tests.support.waiting import quiet_for, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOES_ON_WITHIN = 30.0  # seconds from an edit to a paused worker's next row, as its status shows it


def test_output_ids_are_those_of_a_direct_request(bed: Bed, vllm: str) -> None:
    """At temperature 0 in fp32 a server gives the same ids again, so any difference would be ours."""
    prompts = bed.prompts("exact.jsonl", 12)
    run = bed.create_run(
        "exact",
        datasets=[bed.dataset("B1_exact", prompts), bed.dataset("B2_exact", bed.prompts("exact2.jsonl", 4))],
        endpoints=[bed.endpoint(vllm)],
        sampling={"temperature": "0", "maxCompletionTokens": 24},
    )

    status = bed.kube.wait_phase(run, "Succeeded", within=300)

    records = assert_complete(bed.output(run), {"B1_exact": 12, "B2_exact": 4})
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda record: _ask(vllm, record["messages"], 24), records))
    for record, answer in zip(records, answers, strict=True):
        assert record["prompt_ids"] == answer["prompt_token_ids"]
        assert record["output_ids"] == answer["choices"][0]["token_ids"]
    assert status["progress"]["done"] == status["progress"]["total"] == 16
    assert status["output"]["records"] == 16
    assert status["output"]["tokens"] == sum(len(record["output_ids"]) for record in records)
    _assert_manifest(bed, run, status)


def test_answers_that_were_asked_in_another_way_are_refused_or_kept_in_a_folder_beside(
    bed: Bed, vllm: str
) -> None:
    folder, rows = {"path": "runs/asked"}, 6
    spec: dict[str, Any] = {
        "datasets": [bed.dataset("B1", bed.prompts("asked.jsonl", rows))],
        "endpoints": [bed.endpoint(vllm)],
    }
    longer, shorter = ({"temperature": "0", "maxCompletionTokens": tokens} for tokens in (16, 8))
    first = bed.create_run("asked", **spec, sampling=longer, output=folder)
    assert bed.kube.wait_phase(first, "Succeeded", within=300)["plan"]["outputPath"] == folder["path"]
    before = {path: path.read_bytes() for path in bed.output("asked").rglob("*.json*")}

    mixing = bed.create_run("mixing", **spec, sampling=shorter, output=folder)
    beside = bed.create_run("beside", **spec, sampling=shorter, output={**folder, "onChange": "NewFolder"})

    refused = bed.kube.wait_phase(mixing, "Failed", within=120)
    assert refused["reason"] == "OutputFolderDiffers"
    status = bed.kube.wait_phase(beside, "Succeeded", within=300)
    found = bed.data / status["plan"]["outputPath"]
    assert found.parent == bed.output("asked").parent
    assert found.name.startswith("asked@")
    assert found.name.removeprefix("asked@") in refused["message"], "the fingerprint that it is named after"
    assert_complete(found, {"B1": rows})
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_deleted_generator_pod_is_replaced_and_resumes(bed: Bed, vllm: str) -> None:
    run = bed.create_run(
        "pod-deleted",
        datasets=[
            bed.dataset("B1", bed.prompts("deleted.jsonl", 100))
        ],  # not all done when the pod is deleted
        endpoints=[bed.endpoint(vllm)],
        generation={"concurrency": 4},
        sampling={"temperature": "0", "maxCompletionTokens": 16},
    )
    bed.kube.wait(run, lambda status: status.get("progress", {}).get("done", 0) >= 2, 120, "first records of")
    first = bed.kube.running_pod(run, "worker")

    bed.kube.core.delete_namespaced_pod(first.metadata.name, bed.kube.namespace)

    second = bed.kube.running_pod(run, "worker", within=60)
    assert second.metadata.uid != first.metadata.uid
    bed.kube.wait_phase(run, "Succeeded", within=300)
    assert_complete(bed.output(run), {"B1": 100})


def test_a_deleted_run_takes_everything_of_its_own_with_it(bed: Bed, vllm: str) -> None:
    run = bed.create_run(
        "deleted",
        datasets=[bed.dataset("B1", bed.prompts("gone.jsonl", 200))],
        endpoints=[bed.endpoint(vllm)],
        sampling={"maxCompletionTokens": 256},
    )
    bed.kube.running_pod(run, "worker", within=120)

    bed.kube.delete_run(run)

    until(
        lambda: not bed.kube.children(run), 60, lambda: f"children of a deleted run: {bed.kube.children(run)}"
    )
    assert bed.kube.run(run) is None


def test_a_run_that_finishes_while_the_operator_is_away_is_completed_later(bed: Bed, vllm: str) -> None:
    run = bed.create_run(
        "away",
        datasets=[bed.dataset("B1", bed.prompts("away.jsonl", 6))],
        endpoints=[bed.endpoint(vllm)],
        sampling={"temperature": "0", "maxCompletionTokens": 16},
    )
    bed.kube.wait_phase(run, "Finishing", within=120)

    with bed.operator_away():
        until(lambda: bed.finish_job_succeeded(run), 60, "the finish job succeeds")
        assert bed.kube.status(run)["phase"] == "Finishing"

    status = bed.kube.wait_phase(run, "Succeeded", within=60)
    assert status["output"]["records"] == 6


def test_concurrency_can_be_changed_while_running(bed: Bed, vllm: str) -> None:
    run = bed.create_run(
        "live",
        datasets=[bed.dataset("B1", bed.prompts("live.jsonl", 150))],
        endpoints=[bed.endpoint(vllm)],
        generation={"concurrency": 2},
        sampling={"temperature": "0", "maxCompletionTokens": 24},
    )
    bed.kube.wait(run, lambda status: status.get("progress", {}).get("done", 0) >= 1, 120, "first record of")
    pod = bed.kube.running_pod(run, "worker").metadata.uid

    bed.kube.patch_run(run, {"spec": {"generation": {"concurrency": 20}}})

    bed.kube.wait(
        run,
        lambda status: (
            status["progress"].get("inFlight", 0) > 2
            and status["configHash"] == bed.config_hash_with(run, 20)
        ),
        20,
        "more in flight, by the config in force, in",
    )
    assert bed.kube.running_pod(run, "worker").metadata.uid == pod
    bed.kube.wait_phase(run, "Succeeded", within=300)


def test_a_run_pauses_above_five_percent_of_failed_rows_and_goes_on_when_it_is_told_to(
    bed: Bed, vllm: str
) -> None:
    """Two of a window of 20 are above the default of 5 %; one more row may be in flight when it trips."""
    rows, too_long = 20, 6
    run = bed.create_run(
        "tripped",
        datasets=[bed.dataset("B1", bed.prompts("tripped.jsonl", rows, too_long=range(too_long)))],
        endpoints=[bed.endpoint(vllm)],
        generation={"concurrency": 1, "errorPolicy": {"window": rows}},
        sampling={"temperature": "0", "maxCompletionTokens": 8},
    )
    status = bed.kube.wait_phase(run, "Paused", within=120)
    _assert_tripped(status)
    pod = bed.kube.running_pod(run, "worker").metadata.uid

    bed.kube.patch_run(run, {"spec": {"resumeToken": "with-a-fresh-window"}})

    status = bed.kube.wait(
        run,
        lambda status: status["phase"] == "Paused" and status["progress"]["errors"] >= 4,
        GOES_ON_WITHIN,
        "two further failed rows, and another pause, of",
    )
    _assert_tripped(status)
    assert bed.kube.running_pod(run, "worker").metadata.uid == pod

    bed.kube.patch_run(run, {"spec": {"generation": {"errorPolicy": {"pausePercent": 50}}}})

    bed.kube.wait(run, lambda status: status["phase"] != "Paused", GOES_ON_WITHIN, "going on with")
    status = bed.kube.wait_phase(run, "Succeeded", within=120)
    counts = status["progress"]
    assert (counts["done"], counts["errors"], counts["total"]) == (rows - too_long, too_long, rows)
    (failure,) = status["failures"]
    assert (failure["reason"], failure["count"]) == ("context_overflow", too_long)
    assert failure["remedy"].startswith("raise server.contextLength")
    assert_complete(bed.output(run), {"B1": rows - too_long})
    letters = list(lines(bed.output(run), "dead_letter*.jsonl"))
    assert len({letter["id"] for letter in letters}) == len(letters) == too_long
    assert all(letter["permanent"] and letter["tries"] == 1 for letter in letters)


def test_a_concurrency_that_is_to_be_found_settles_and_says_why(bed: Bed, vllm: str) -> None:
    run = bed.create_run(
        "auto",
        datasets=[bed.dataset("B1", bed.prompts("auto.jsonl", 2000))],
        endpoints=[bed.endpoint(vllm)],
        generation={"concurrency": "Auto"},
        sampling={"temperature": "0", "maxCompletionTokens": 64},
    )

    status = bed.kube.wait(
        run,
        lambda status: status.get("progress", {}).get("concurrency", {}).get("settled", False),
        300,
        "a concurrency that has settled in",
    )

    chosen = status["progress"]["concurrency"]
    assert 1 <= chosen["inForce"] <= 64, "the server works on 32 at once"
    assert chosen["reason"]
    bed.kube.wait(run, lambda status: status["progress"]["inFlight"] <= chosen["inForce"], 60, "it holds in")
    bed.kube.delete_run(run)


def test_an_operator_whose_runs_have_ended_writes_nothing_but_its_lease(bed: Bed, vllm: str) -> None:
    run = bed.create_run(
        "ended",
        datasets=[bed.dataset("B1", bed.prompts("ended.jsonl", 2))],
        endpoints=[bed.endpoint(vllm)],
        sampling={"temperature": "0", "maxCompletionTokens": 8},
    )
    bed.kube.wait_phase(run, "Succeeded", within=300)
    quiet_for(5)  # the events of its end
    since = time.time()

    quiet_for(60)

    writes = bed.operator_writes(since)
    assert [write for write in writes if write.resource != "leases"] == []
    assert len(writes) > 10, "the Lease is kept"


def _ask(url: str, messages: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    body = {
        "model": MODEL_NAME,
        "messages": messages,
        "temperature": 0,
        "max_tokens": tokens,
        "return_token_ids": True,
    }
    request = urllib.request.Request(  # noqa: S310  a server of ours
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  a server of ours
        return dict(json.loads(answer.read()))


def _assert_tripped(status: dict[str, Any]) -> None:
    (paused,) = (each for each in status["conditions"] if each["type"] == "Paused")
    assert (paused["status"], paused["reason"]) == ("True", "ErrorPolicyTripped")
    assert (status["reason"], status["message"]) == ("ErrorPolicyTripped", paused["message"])
    figures = r"paused: 2 of the last \d+ asked rows failed, 10 % of a window of 20 \(pausePercent is 5\); "
    assert re.match(figures + r"most often context_overflow \(2\), for example row ", paused["message"])


def _assert_manifest(bed: Bed, run: str, status: dict[str, Any]) -> None:
    manifest = json.loads((bed.output(run) / "manifest.json").read_text())
    summary = json.loads((bed.output(run) / "summary.json").read_text())
    assert manifest["records"] == status["output"]["records"]
    assert summary["accounted"] is True
    assert manifest["model"]["fingerprint"] == status["output"]["model"]["fingerprint"]
