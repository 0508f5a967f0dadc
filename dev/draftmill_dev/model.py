"""The demo's model: SmolLM2-135M-Instruct, small enough for two cores and yet a real one."""

from __future__ import annotations

from pathlib import Path

from draftmill_dev import cache, environment, venvs

NAME = "smollm2-135m"
_CONVERT = venvs.REPOSITORY / "dev" / "environment" / "convert_model.py"


def build() -> Path:
    """Returns a folder that holds the model in the subfolder `NAME`; converts it when it is not there yet.

    Raises:
        CommandError: The conversion failed.
    """
    return cache.build("model", [_CONVERT, venvs.REQUIREMENTS / "server.txt"], _make)


def _make(folder: Path) -> None:
    python = environment.build() / "bin" / "python"
    cache.run([python, _CONVERT, folder / NAME], folder, env={"HF_HUB_OFFLINE": "1"})
    for file in (folder / NAME).iterdir():
        file.chmod(0o644)  # the weights are written for their owner alone; pods read them as another user
