"""Which processes of a training a machine runs, and how they find each other: from the environment alone.

In a pod torchrun's own `PET_*` variables say how many machines there are and which one this is. A process
that torchrun itself started has `RANK`. A laptop has neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from draftmill_jobs.errors import JobRefusedError

_ANY_PORT: Final = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine among those of a training.

    Attributes:
        number: Which one it is.
        machines: How many there are.
        processes: That each runs.
        address: Of machine 0.
        port: Of machine 0, where the processes meet; 0 is any free one.
    """

    number: int
    machines: int
    processes: int
    address: str
    port: int

    @property
    def ranks(self) -> int:
        """Processes of the whole training."""
        return self.machines * self.processes

    def environments(self, port: int) -> Iterator[dict[str, str]]:
        """What torch is told in each of this machine's processes."""
        for local in range(self.processes):
            yield {
                "RANK": str(self.number * self.processes + local),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(self.ranks),
                "LOCAL_WORLD_SIZE": str(self.processes),
                "MASTER_ADDR": self.address,
                "MASTER_PORT": str(port),
            }


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether this process is one of a training already."""
    return "RANK" in environment


def this_machine(environment: Mapping[str, str], *, nodes: int, gpus_per_node: int) -> Machine:
    """Where this process is, when it is not one of a training yet.

    Args:
        environment: Of this process.
        nodes: What the config says.
        gpus_per_node: What the config says; there is a process for each, and one without any.

    Raises:
        JobRefusedError: The environment says something else than the config, or not enough.
    """
    machines = _number(environment, "PET_NNODES", nodes)
    if machines != nodes:
        raise _invalid(f"PET_NNODES is {machines}, and the config has nodes: {nodes}")
    if machines > 1 and not {"PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"} <= environment.keys():
        raise _invalid(
            f"nodes is {machines}, and PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT do not say which "
            "this is and where they meet; set them, or nodes: 1"
        )
    machine = Machine(
        number=_number(environment, "PET_NODE_RANK", 0),
        machines=machines,
        processes=_number(environment, "PET_NPROC_PER_NODE", max(1, gpus_per_node)),
        address=environment.get("PET_MASTER_ADDR", "127.0.0.1"),
        port=_number(environment, "PET_MASTER_PORT", _ANY_PORT),
    )
    if machine.number >= machines or not machine.processes:
        raise _invalid(
            f"PET_NODE_RANK {machine.number} of {machines} machines with {machine.processes} processes each"
        )
    return machine


def join_alone(machine: Machine) -> None:
    """Makes this process the only one of its machine."""
    (environment,) = machine.environments(machine.port)
    os.environ.update(environment)


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise _invalid(f"{name} is {text!r}, which is no number")
    return int(text)


def _invalid(sentence: str) -> JobRefusedError:
    return JobRefusedError("ConfigurationInvalid", sentence)
