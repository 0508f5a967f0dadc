"""The real operator as a process of its own, against any API server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.ports import free_port
from tests.support.waiting import until

JOB_IMAGE = "registry.example/draftmill-jobs:test"
TRAINER_IMAGE = "registry.example/draftmill-jobs-train:test"


@dataclass
class OperatorProcess:
    """An operator for one namespace, that can be killed and started again.

    Attributes:
        kubeconfig: Whose API server it works on.
        namespace: The namespace that it watches and keeps its lease in.
        folder: Where its settings and log are.
        identity: The name of its pod; a restarted container keeps it.
        program: What Python runs.
    """

    kubeconfig: Path
    namespace: str
    folder: Path
    identity: str = "draftmill-operator-0"
    program: Sequence[str] = ("-m", "draftmill_operator")
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    def configure(self, **settings: Any) -> None:
        """Write the settings file; unnamed settings have their defaults."""
        base = {
            "jobImage": JOB_IMAGE,
            "trainerImage": TRAINER_IMAGE,
            "watchNamespaces": [self.namespace],
            "logFormat": "Text",
        }
        (self.folder / "settings.yaml").write_text(yaml.safe_dump(base | settings))

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.begin()
        until(self.is_ready, 90, self.log)

    def begin(self) -> None:
        """Start it."""
        self.port = free_port()
        command = [sys.executable, "-P", *self.program]
        command += ["--settings", str(self.folder / "settings.yaml"), "--kubeconfig", str(self.kubeconfig)]
        command += ["--namespace", self.namespace, "--http-port", str(self.port)]
        with (self.folder / "operator.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"POD_NAME": self.identity}
            )

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def wait(self, within: float) -> int:
        """Wait for its end by itself; the exit code."""
        assert self.process is not None
        return self.process.wait(within)

    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return self.get("/readyz")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        """An answer of its HTTP server; code 0 while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def log(self) -> str:
        """Its log so far; empty before its first start."""
        path = self.folder / "operator.log"
        return path.read_text() if path.exists() else ""

    def _end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)


@contextlib.contextmanager
def operator_process(
    kubeconfig: Path, namespace: str, folder: Path, **settings: Any
) -> Iterator[OperatorProcess]:
    """A configured operator, not started yet; killed at the end."""
    operator = OperatorProcess(kubeconfig, namespace, folder)
    operator.configure(**settings)
    try:
        yield operator
    finally:
        if operator.process is not None and operator.process.poll() is None:
            operator.kill()
        print(operator.log()[-20_000:])  # pytest shows it if the test has failed
