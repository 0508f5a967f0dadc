"""Which processes of a training a machine runs."""

from __future__ import annotations

import pytest

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.places import is_rank, this_machine

POD = {
    "PET_NNODES": "3",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "2",
    "PET_MASTER_ADDR": "kimi-dt-worker-1-0.kimi-dt",
    "PET_MASTER_PORT": "29400",
}


def test_a_pod_runs_a_process_for_each_gpu_and_knows_where_all_meet() -> None:
    machine = this_machine(POD, nodes=3, gpus_per_node=8)
    places = list(machine.environments(machine.port))

    assert machine.ranks == 24
    assert [place["RANK"] for place in places] == [str(rank) for rank in range(16, 24)]
    assert [place["LOCAL_RANK"] for place in places] == [str(local) for local in range(8)]
    assert {place["WORLD_SIZE"] for place in places} == {"24"}
    assert {place["MASTER_ADDR"] for place in places} == {POD["PET_MASTER_ADDR"]}
    assert {place["MASTER_PORT"] for place in places} == {"29400"}


@pytest.mark.parametrize(("gpus", "processes"), [(0, 1), (1, 1), (4, 4)])
def test_a_laptop_runs_a_process_for_each_gpu_and_one_without_any(gpus: int, processes: int) -> None:
    machine = this_machine({}, nodes=1, gpus_per_node=gpus)

    assert (machine.processes, machine.ranks, machine.number) == (processes, processes, 0)


def test_a_process_that_torchrun_started_is_a_rank_already() -> None:
    assert is_rank({"RANK": "0"})
    assert not is_rank(POD)


@pytest.mark.parametrize(
    ("environment", "nodes", "sentence"),
    [
        ({}, 2, "nodes is 2, and PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT do not say"),
        (POD, 2, "PET_NNODES is 3, and the config has nodes: 2"),
        ({**POD, "PET_NODE_RANK": "3"}, 3, "PET_NODE_RANK 3 of 3 machines"),
        ({**POD, "PET_NPROC_PER_NODE": "auto"}, 3, "PET_NPROC_PER_NODE is 'auto', which is no number"),
        ({**POD, "PET_NPROC_PER_NODE": "0"}, 3, "with 0 processes each"),
    ],
)
def test_an_environment_that_does_not_fit_the_config_is_refused(
    environment: dict[str, str], nodes: int, sentence: str
) -> None:
    with pytest.raises(JobRefusedError, match=sentence):
        this_machine(environment, nodes=nodes, gpus_per_node=8)
