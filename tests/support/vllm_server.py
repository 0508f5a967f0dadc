"""A real vLLM on CPU, as a process of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from draftmill_dev import environment
from tests.support.ports import free_port
from tests.support.waiting import until

_STARTING = 3600.0  # seconds; half a minute where nothing else runs
_NO_VARIABLES: Mapping[str, str] = {}


@contextmanager
def serving_vllm(
    model: Path,
    flags: Sequence[str],
    log: Path,
    *,
    name: str,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Iterator[str]:
    """Runs a server that compiles nothing, as the operator renders it; yields its address.

    Args:
        model: Its folder.
        flags: Further ones.
        log: Where the server's words go.
        name: Under which it serves the model.
        variables: Further ones.
    """
    port = free_port()
    with log.open("w") as file:
        process = subprocess.Popen(
            [*environment.vllm_command(model, name=name, port=port), *flags],
            env={**os.environ, **environment.VARIABLES, "TORCHDYNAMO_DISABLE": "1", **variables},
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
