"""`python -m draftmill_operator`: settings, connection, and the process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from draftmill_operator.kube.connection import Connection, CredentialsError, from_kubeconfig, in_cluster
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.lease import LeaseLostError
from draftmill_operator.logs import configure
from draftmill_operator.process import Operator, Place
from draftmill_operator.settings import SettingsError, load_settings
from draftmill_operator.watch import WatchEndedError

log = logging.getLogger("draftmill_operator")

EXPECTED = (ApiError, LeaseLostError, WatchEndedError, aiohttp.ClientError, OSError)
"""What may end the process and says why by itself."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator; 0 after SIGTERM, 1 when something ended it, 2 when it cannot start."""
    arguments = _parser().parse_args(argv)
    try:
        settings = load_settings(arguments.settings)
        connection = _connection(arguments.kubeconfig)
    except (SettingsError, CredentialsError) as error:
        print(f"draftmill-operator: {error}", file=sys.stderr)
        return 2
    configure(settings.log_level, settings.log_format)
    place = Place(arguments.namespace, _identity(), arguments.http_port)
    try:
        asyncio.run(Operator(settings, connection, place).run())
    except (*EXPECTED, BaseExceptionGroup) as error:
        return _explain(error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="draftmill-operator", description="The Draftmill operator.")
    parser.add_argument("--settings", type=Path, required=True, help="settings file, as the chart writes it")
    parser.add_argument("--kubeconfig", type=Path, help="kubeconfig (default: the pod's account)")
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "default"),
        help="namespace of the lease (default: $POD_NAMESPACE)",
    )
    parser.add_argument("--http-port", type=int, default=8080, help="port of /livez, /readyz and /metrics")
    return parser


def _connection(kubeconfig: Path | None) -> Connection:
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig)
    return in_cluster(
        os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    )


def _identity() -> str:
    """The pod: when its container is restarted, the new process takes the dead one's lease at once."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


def _explain(error: BaseException) -> int:
    """Log what ended the process: a sentence where it is known, a traceback where it is not."""
    if isinstance(error, BaseExceptionGroup):
        return max(_explain(inner) for inner in error.exceptions)
    log.error("the operator ends: %s", error, exc_info=None if isinstance(error, EXPECTED) else error)
    return 1


if __name__ == "__main__":
    sys.exit(main())
