"""The processes of `make bench-generator`: a client in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from draftmill_dev import cache, venvs

RIVAL = ["datatrove==0.10.1", "httpx", "aiosqlite", "xxhash", "aiofiles", "orjson"]
CLIENTS = Path(__file__).with_name("generator_clients.py")
_LONGEST = 1200.0  # seconds of one client


def rival_python() -> str:
    """The Python of an environment with the rival, made once."""

    def make(folder: Path) -> None:
        venv = folder / "venv"
        venvs.run_uv(["venv", "--python", sys.executable, venv], folder)
        venvs.run_uv(["pip", "install", "--python", venv, *RIVAL, "aiohttp", "uvloop"], folder)

    return str(cache.build("bench", [*RIVAL, sys.version], make) / "venv" / "bin" / "python")


def run_client(client: str, *flags: str) -> str:
    """Runs a client to its end; returns what it printed."""
    python = rival_python() if client.startswith("datatrove") else sys.executable
    return run([python, "-P", str(CLIENTS), client, *flags], {})


def run(command: list[str], variables: dict[str, str]) -> str:
    """Runs a program with further variables of the environment; returns what it printed."""
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-6000:]}")
    return done.stdout
