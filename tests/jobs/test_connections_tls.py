"""Servers behind TLS: asked only when their certificate is to be trusted."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from draftmill_jobs.engines.connections import Connections
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.engines.http1 import Reply
from tests.support.raw_server import RawServer

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` that nobody has signed but itself, and its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1"),
            *("-keyout", file, "-out", file.with_suffix(".crt")),
        ],
        check=True,
        capture_output=True,
    )
    with file.open("a") as both:
        both.write(file.with_suffix(".crt").read_text())
    return file


@pytest.fixture
async def server(certificate: Path) -> AsyncIterator[RawServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with RawServer(GOOD, certificates=context) as server:
        yield server


async def ask(url: str) -> Reply:
    connections = Connections()
    try:
        return await connections.post(url, "/generate", b"{}", connect_timeout=20.0, byte_came=lambda: None)
    finally:
        connections.close()


async def test_a_certificate_that_nobody_vouches_for_is_refused(server: RawServer) -> None:
    with pytest.raises(RequestFailedError, match="CERTIFICATE_VERIFY_FAILED") as failed:
        await ask(server.url)
    assert failed.value.kind is FailureKind.CONNECT
    assert server.requests == []


async def test_authorities_of_the_environment_are_trusted(
    server: RawServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    assert (await ask(server.url)).status == 200
    with pytest.raises(RequestFailedError, match=r"not valid for '127\.0\.0\.1'"):
        await ask(server.url.replace("localhost", "127.0.0.1"))
