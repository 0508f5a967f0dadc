"""How to reach the API server: from inside the cluster, or by a kubeconfig."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(Exception):
    """The API server's address or credentials cannot be found; the message says where was looked."""


@dataclass(frozen=True)
class Connection:
    """Address and credentials of the API server; certificates and keys in base64, as in a kubeconfig."""

    server: str
    ca_data: str | None = None
    certificate_data: str | None = None
    key_data: str | None = None
    token: str | None = None
    token_file: Path | None = None
    """Projected service account tokens are renewed on disk."""

    def bearer_token(self) -> str | None:
        """The token in force, read anew where it lies in a file."""
        return self.token_file.read_text().strip() if self.token_file is not None else self.token

    def ssl_context(self) -> ssl.SSLContext:
        """TLS that trusts the cluster's authority and shows the client's certificate."""
        authority = base64.b64decode(self.ca_data).decode() if self.ca_data is not None else None
        context = ssl.create_default_context(cadata=authority)
        if self.certificate_data is not None and self.key_data is not None:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
                pem.write(base64.b64decode(self.certificate_data))
                pem.write(b"\n")
                pem.write(base64.b64decode(self.key_data))
                pem.flush()
                context.load_cert_chain(pem.name)
        return context


def in_cluster(host: str, port: str) -> Connection:
    """The connection of a pod with a service account.

    Raises:
        CredentialsError: no token is mounted.
    """
    token_file, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    if not token_file.is_file():
        raise CredentialsError(f"no service account token at {token_file}; outside a pod use --kubeconfig")
    address = f"[{host}]" if ":" in host else host
    return Connection(
        server=f"https://{address}:{port}",
        ca_data=base64.b64encode(authority.read_bytes()).decode(),
        token_file=token_file,
    )


def from_kubeconfig(path: Path) -> Connection:
    """The connection of a kubeconfig's current context.

    Raises:
        CredentialsError: the file, or something that it names, is missing.
    """
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        return Connection(
            server=cluster["server"].rstrip("/"),
            ca_data=_data(cluster, "certificate-authority", path),
            certificate_data=_data(user, "client-certificate", path),
            key_data=_data(user, "client-key", path),
            token=user.get("token"),
        )
    except (OSError, KeyError, StopIteration, yaml.YAMLError) as error:
        raise CredentialsError(
            f"cannot use the kubeconfig {path}: {type(error).__name__}: {error}"
        ) from error


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _data(holder: dict[str, Any], field: str, kubeconfig: Path) -> str | None:
    """Inline data, or the content of a file named relative to the kubeconfig."""
    if f"{field}-data" in holder:
        return str(holder[f"{field}-data"])
    if field in holder:
        return base64.b64encode((kubeconfig.parent / holder[field]).read_bytes()).decode()
    return None
