"""The real Helm with the chart."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from draftmill_dev import binaries

Manifest = dict[str, Any]

CHART = Path(__file__).parents[2] / "charts" / "draftmill"
RELEASE = "draftmill"
NAMESPACE = "draftmill-system"
_KUBERNETES = binaries.KUBERNETES_VERSION.removeprefix("v")


class HelmError(Exception):
    """Helm refused; the text is what it said."""


@dataclass(frozen=True)
class Helm:
    """Helm with the chart.

    Attributes:
        program: The real Helm.
        kubeconfig: The cluster that it talks to, if any.
        namespace: Where the release is.
    """

    program: Path
    kubeconfig: Path | None = None
    namespace: str = NAMESPACE

    def __call__(self, *arguments: str, values: Manifest | None = None) -> str:
        """Runs Helm; `values` are given as a file.

        Raises:
            HelmError: It failed.
        """
        command = [str(self.program), *arguments, "--namespace", self.namespace]
        command += ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        command += ["--values", "-"] if values is not None else []
        done = subprocess.run(
            command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise HelmError(done.stderr or done.stdout)
        return done.stdout

    def template(self, values: Manifest | None = None, release: str = RELEASE) -> list[Manifest]:
        """The objects that an installation with these values makes."""
        text = self("template", release, str(CHART), "--kube-version", _KUBERNETES, values=values or {})
        return [manifest for manifest in yaml.safe_load_all(text) if manifest]

    def upgrade(self, values: Manifest | None = None) -> None:
        """Installs the chart, or brings the release up to these values."""
        self("upgrade", "--install", RELEASE, str(CHART), "--create-namespace", values=values or {})


def one(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The only object of a kind (and name)."""
    (found,) = (m for m in manifests if m["kind"] == kind and name in ("", m["metadata"]["name"]))
    return found
