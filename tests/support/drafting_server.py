"""A real vLLM on CPU that serves the toy target, with a drafter or without."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill_dev import environment
from tests.support.waiting import until

NAME = "toy"
_STARTING = 3600.0  # seconds; half a minute where nothing else runs


@contextmanager
def serving(target: Path, log: Path, *, drafter: Path | None, draft_tokens: int) -> Iterator[str]:
    """Runs a server that computes in float32; yields its address.

    Args:
        target: Folder of the target; it has no tokenizer, and prompts are token ids.
        log: Where the server's words go.
        drafter: Folder of the drafter, if it shall draft.
        draft_tokens: In a cycle.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    speculative = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": draft_tokens}
    drafting = ["--speculative-config", json.dumps(speculative)] if drafter is not None else []
    command = [
        *environment.vllm_command(target, name=NAME, port=port),
        *("--max-model-len", "256", "--skip-tokenizer-init", "--no-enable-prefix-caching"),
        *drafting,
    ]
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment.VARIABLES, "TORCHDYNAMO_DISABLE": "1"},  # no C++ compiler
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: process.poll() is not None or _is_up(url), _STARTING, "the server is up")
        assert process.poll() is None, log.read_text()[-6000:]
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=20) as answer:  # noqa: S310  an address of ours
            return bool(answer.status == 200)
    except OSError:
        return False
