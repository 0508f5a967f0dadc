"""Trainers of several pods on a real node: they learn what one learns, whoever of them is killed."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from draftmill_api import names
from tests.support.bed import JOB_USER, Bed
from tests.support.event_reader import curve
from tests.support.kube import Kube, is_running
from tests.support.train_job import TRAINING, TrainJob
from tests.support.trainer_processes import newest_weights
from tests.support.waiting import until

pytestmark = [pytest.mark.life, pytest.mark.timeout(1800)]

FOLDER = "training"  # on the data volume
KILLS = 2
_DONE = 900.0  # seconds


@pytest.fixture(scope="module")
def trainings(bed: Bed) -> Kube:
    """The runs' namespace, with a target and a store on the data volume."""
    job = TrainJob(bed.data / FOLDER)
    for path in (job.folder, *job.folder.rglob("*")):
        os.chown(path, JOB_USER, JOB_USER)
    return bed.kube.of("draftertrains")


def create(kube: Kube, bed: Bed, name: str, nodes: int) -> None:
    data = bed.storage()["data"]
    spec = {
        "from": {"path": f"{FOLDER}/states"},
        "target": {"name": "tiny", "path": f"{FOLDER}/target"},
        "storage": {"models": data, "data": data},
        "scratch": {"draftVocabSize": 48},
        "training": {
            **TRAINING,
            "epochs": 60,
            "learningRate": "0.003",
            "pod": {"resources": {"limits": {"cpu": "1"}}},
        },
        "nodes": nodes,
        "gpusPerNode": 0,
        "sharedMemory": "64Mi",
        "checkpoint": {"everySteps": 5, "keep": 2},
        "heldOutPercent": 20,
        "output": {"path": f"{FOLDER}/{name}"},
    }
    kube.create_run(
        {
            "apiVersion": names.API_VERSION,
            "kind": "DrafterTrain",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def rank(kube: Kube, run: str, number: int) -> Any:
    """A running pod of the trainer."""

    def look() -> Any:
        pods = [pod for pod in kube.pods(run, "worker") if is_running(pod)]
        return next(
            (pod for pod in pods if pod.metadata.annotations[names.ANNOTATION_RANK] == str(number)), None
        )

    return until(look, _DONE, lambda: f"rank {number} of {run}: {kube.status(run)}")


def saved(status: dict[str, Any]) -> int:
    return int(status.get("progress", {}).get("savedStep", 0))


def kill_after_progress(kube: Kube, run: str, victim: int) -> None:
    """Kills one rank after a new checkpoint, and waits until all of them are started again."""
    before = kube.status(run)
    attempts = before["attempts"][0]["count"] if "attempts" in before else 1
    kube.wait(run, lambda status: saved(status) > saved(before), _DONE, "a new checkpoint of")
    kube.kill(rank(kube, run, victim))
    kube.wait(run, lambda status: status["attempts"][0]["count"] > attempts, _DONE, "another attempt of")


def test_two_ranks_that_are_killed_twice_learn_what_undisturbed_ones_and_a_single_one_do(
    trainings: Kube, bed: Bed
) -> None:
    kube = trainings
    create(kube, bed, "alone", nodes=1)
    alone = kube.wait_phase("alone", "Succeeded", within=_DONE)
    create(kube, bed, "undisturbed", nodes=2)
    undisturbed = kube.wait_phase("undisturbed", "Succeeded", within=_DONE)
    create(kube, bed, "killed", nodes=2)
    for victim in range(KILLS):
        kill_after_progress(kube, "killed", victim)
    killed = kube.wait_phase("killed", "Succeeded", within=_DONE)

    assert len(undisturbed["attempts"]) == 1
    assert undisturbed["attempts"][0]["count"] == 1
    whole, again = (newest_weights(bed.data / FOLDER / run) for run in ("undisturbed", "killed"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert (
        killed["progress"]["step"]
        == undisturbed["progress"]["step"]
        == alone["progress"]["step"]
        == alone["plan"]["steps"]
    )
    one_curve, two_curve = (
        curve(bed.data / FOLDER / run / "tensorboard", "loss/0") for run in ("alone", "killed")
    )
    assert len(one_curve) == alone["plan"]["steps"]
    assert two_curve == pytest.approx(one_curve, abs=1e-3)
    one = newest_weights(bed.data / FOLDER / "alone")
    assert all(torch.allclose(one[name], again[name], atol=1e-3) for name in one)
