"""kubectl and Helm, on one cluster and namespace."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill_dev.errors import DevError

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Kubectl:
    """The two programs and the cluster they talk to.

    Attributes:
        kubectl: The program.
        helm: The program.
        kubeconfig: The cluster; None stands for the one that the person's own kubectl would use.
        namespace: Where runs and claims are.
    """

    kubectl: Path
    helm: Path
    kubeconfig: Path | None
    namespace: str

    def run(self, *arguments: str, given: str | None = None) -> str:
        """Runs kubectl and returns what it printed.

        Args:
            arguments: The command and its flags.
            given: Standard input.

        Raises:
            DevError: kubectl failed; the message is its own.
        """
        return _run(
            [str(self.kubectl), "--namespace", self.namespace, *arguments], self._environment(), given
        )

    def run_helm(self, *arguments: str, given: str | None = None) -> str:
        """Runs Helm in the same way."""
        return _run([str(self.helm), *arguments], self._environment(), given)

    def get(self, *arguments: str) -> dict[str, Any] | None:
        """An object, or None when there is none."""
        text = self.run("get", *arguments, "--ignore-not-found", "--output", "json")
        return dict(json.loads(text)) if text.strip() else None

    def apply(self, manifests: Sequence[Manifest]) -> None:
        """Applies objects on the server side."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.run("apply", "--server-side", "--filename", "-", given=json.dumps(whole))

    def _environment(self) -> dict[str, str]:
        chosen = {} if self.kubeconfig is None else {"KUBECONFIG": str(self.kubeconfig)}
        return {**os.environ, **chosen}


def _run(command: Sequence[str], environment: Mapping[str, str], given: str | None) -> str:
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, input=given or "", env=environment
        )
    except FileNotFoundError as error:
        raise DevError(f"{command[0]} is not installed.") from error
    if done.returncode != 0:
        raise DevError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
