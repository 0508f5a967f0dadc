"""`speculators train` where there is no accelerator. Runs in the environment of speculators, not in ours.

Its trainer moves the model to device 0 and pins memory without asking. Here it is told that the device is the
CPU.
"""

# mypy: ignore-errors

from __future__ import annotations

import sys

import speculators.train.checkpointer
import speculators.train.trainer
import speculators.utils.util
import torch
import torch.utils.data._utils.pin_memory
from speculators.__main__ import app


def current_accelerator(check_available: bool = False) -> torch.device | None:
    """There is none to be had, and the CPU is the one in use."""
    return None if check_available else torch.device("cpu")


def leave_where_it_is(data: object, device: object = None) -> object:
    """Memory is pinned for a device only."""
    return data


def main() -> None:
    """Puts the CPU in the accelerator's place, and trains."""
    torch.utils.data._utils.pin_memory.pin_memory = leave_where_it_is
    torch.accelerator.is_available = lambda: False
    torch.accelerator.synchronize = lambda *_, **__: None
    torch.accelerator.current_accelerator = current_accelerator
    speculators.train.trainer.get_local_rank = lambda: torch.device("cpu")
    for module in (speculators.train.checkpointer, speculators.utils.util):
        module.get_current_device = lambda: "cpu"
    sys.argv = ["speculators", "train", *sys.argv[1:]]
    app()


if __name__ == "__main__":
    main()
