"""What stands in a run's way shows in its status within 30 seconds, in the words of whoever knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bed import Bed
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SHOWN_WITHIN = 30.0


@pytest.fixture
def rows(bed: Bed) -> list[dict[str, Any]]:
    return [bed.dataset("B1", bed.prompts("problem.jsonl", 2))]


@pytest.fixture(autouse=True)
def no_run_is_left(bed: Bed) -> Iterator[None]:
    yield
    bed.delete_all_runs()


def shown(bed: Bed, run: str, *words: str, within: float = SHOWN_WITHIN) -> dict[str, Any]:
    """Waits until a condition's and the status's own text hold the words."""

    def tells(status: dict[str, Any]) -> bool:
        text = f"{status.get('reason')}: {status.get('message')}"
        in_conditions = [f"{each['reason']}: {each.get('message')}" for each in status.get("conditions", [])]
        return all(word in text and any(word in told for told in in_conditions) for word in words)

    return bed.kube.wait(run, tells, within, f"{words} shown by")


def test_a_model_that_is_not_there(bed: Bed, rows: list[dict[str, Any]]) -> None:
    run = bed.create_run(
        "no-model", datasets=rows, server=bed.server(), model={"name": "smol", "path": "missing/smol"}
    )

    status = shown(bed, run, "ModelNotFound", "/models/missing/smol")

    assert status["phase"] == "Failed"
    assert bed.kube.pods(run, "server") == []


def test_prompts_that_are_not_there(bed: Bed) -> None:
    run = bed.create_run(
        "no-prompts", datasets=[bed.dataset("B1", "prompts/missing.jsonl")], server=bed.server()
    )

    assert shown(bed, run, "PromptsNotFound", "missing.jsonl")["phase"] == "Failed"


def test_a_volume_that_cannot_be_written(bed: Bed, rows: list[dict[str, Any]]) -> None:
    bed.make_unwritable("locked")
    run = bed.create_run("no-write", datasets=rows, server=bed.server(), output={"path": "locked/out"})

    assert shown(bed, run, "StorageNotWritable", "locked")["phase"] == "Failed"


def test_a_claim_that_is_not_there(bed: Bed, rows: list[dict[str, Any]]) -> None:
    storage = bed.storage() | {"data": {"persistentVolumeClaim": {"claimName": "no-such-claim"}}}
    run = bed.create_run("no-claim", datasets=rows, server=bed.server(), storage=storage)

    shown(bed, run, 'persistentvolumeclaim "no-such-claim" not found')


def test_an_image_that_cannot_be_pulled(bed: Bed, rows: list[dict[str, Any]]) -> None:
    server = bed.server() | {"image": "127.0.0.1:9/no/such-image:1"}
    run = bed.create_run("no-image", datasets=rows, server=server)
    bed.wait_for_server_pod(run)

    shown(bed, run, "127.0.0.1:9/no/such-image:1")


def test_a_server_that_no_node_has_room_for(bed: Bed, rows: list[dict[str, Any]]) -> None:
    run = bed.create_run("no-room", datasets=rows, server=bed.server(gpus=16))
    bed.wait_for_server_pod(run)

    shown(bed, run, "Unschedulable", "Insufficient nvidia.com/gpu", "1 node has GPUs, 0 have 16 free")


def test_a_server_that_crashes(bed: Bed, rows: list[dict[str, Any]]) -> None:
    server = bed.server() | {"extraArgs": ["--no-such-flag"]}
    run = bed.create_run("crashes", datasets=rows, server=server)
    pod = bed.wait_for_server_pod(run)
    until(lambda: bed.has_ended_once(pod), 90, "the server ends")

    shown(bed, run, "exit code 2", "unrecognized arguments: --no-such-flag")


def test_a_quota_that_refuses_the_jobs_pods(bed: Bed, rows: list[dict[str, Any]]) -> None:
    with bed.quota({"pods": "0"}):
        run = bed.create_run("no-quota", datasets=rows, server=bed.server())

        shown(bed, run, "exceeded quota")


def test_a_quota_that_refuses_the_servers(bed: Bed, rows: list[dict[str, Any]]) -> None:
    with bed.quota({"requests.nvidia.com/gpu": "4"}):
        run = bed.create_run("no-gpu-quota", datasets=rows, server=bed.server(gpus=8))

        shown(bed, run, "exceeded quota")


def test_a_host_path_outside_the_allowed_prefixes(bed: Bed, rows: list[dict[str, Any]]) -> None:
    storage = bed.storage() | {"data": {"hostPath": {"path": "/etc"}}}
    run = bed.create_run("host-path", datasets=rows, server=bed.server(), storage=storage)

    shown(bed, run, "HostPathNotAllowed", "/etc", within=5)
