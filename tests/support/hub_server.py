"""A Hugging Face hub with datasets on it: enough of its API for huggingface_hub and datasets to load them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]


@dataclass
class Hub:
    """Repositories of datasets: each a list of commits, of which `main` is the last.

    Attributes:
        is_down: It answers every request with 503.
    """

    url: str = ""
    commits: dict[str, dict[str, Files]] = field(default_factory=dict)
    is_down: bool = False

    def push(self, repo: str, files: Files) -> str:
        """Adds a commit, to which `main` moves; returns its hash."""
        commits = self.commits.setdefault(repo, {})
        commit = hashlib.sha1(f"{repo}{len(commits)}".encode(), usedforsecurity=False).hexdigest()
        commits[commit] = files
        return commit

    def commit_of(self, repo: str, revision: str) -> str | None:
        """What a branch or commit names."""
        commits = self.commits.get(repo, {})
        return revision if revision in commits else [*commits][-1] if commits and revision == "main" else None


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A hub as long as the block."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if self.hub.is_down:
            self._answer(503, b"down")
            return
        match parts:
            case ["api", "datasets", owner, name, *rest]:
                self._api(f"{owner}/{name}", rest, body, parse_qs(query))
            case ["datasets", owner, name, "resolve", revision, *file]:
                self._file(f"{owner}/{name}", revision, "/".join(file))
            case _:
                self._missing("EntryNotFound")

    do_HEAD = do_POST = do_GET  # noqa: N815 - the base class calls them so

    def _api(self, repo: str, rest: list[str], body: bytes, query: dict[str, list[str]]) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        if repo not in self.hub.commits:
            self._missing("RepoNotFound")
        elif (commit := self.hub.commit_of(repo, revision)) is None:
            self._missing("RevisionNotFound")
        else:
            files = self.hub.commits[repo][commit]
            match rest:
                case [] | ["revision", _]:
                    siblings = [{"rfilename": name} for name in files]
                    self._json(
                        {"id": repo, "sha": commit, "siblings": siblings, "private": False, "tags": []}
                    )
                case ["tree", _, *folder]:
                    self._json(list(_tree(files, "/".join(folder), deep=query.get("recursive") == ["True"])))
                case ["paths-info", _]:
                    asked = parse_qs(body.decode()).get("paths") or json.loads(body or b"{}").get("paths", [])
                    self._json([_entry(name, files[name]) for name in asked if name in files])
                case _:
                    self._missing("EntryNotFound")

    def _file(self, repo: str, revision: str, name: str) -> None:
        commit = self.hub.commit_of(repo, revision)
        content = None if commit is None else self.hub.commits[repo][commit].get(name)
        if content is None:
            self._missing("EntryNotFound", **({"X-Repo-Commit": commit} if commit else {}))
        else:
            etag = hashlib.sha1(content, usedforsecurity=False).hexdigest()
            self._answer(200, content, **{"X-Repo-Commit": str(commit), "ETag": f'"{etag}"'})

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), **{"Content-Type": "application/json"})

    def _missing(self, code: str, **headers: str) -> None:
        self._answer(404, b"", **{"X-Error-Code": code, **headers})

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tree(files: Files, folder: str, *, deep: bool) -> Iterator[dict[str, Any]]:
    folders: set[str] = set()
    for name, content in files.items():
        path = PurePosixPath(name)
        if folder and not path.is_relative_to(folder):
            continue
        inside = path.relative_to(folder or ".")
        if deep or len(inside.parts) == 1:
            yield _entry(name, content)
        for parent in inside.parents:
            if str(parent) != "." and (deep or len(parent.parts) == 1):
                folders.add(str(PurePosixPath(folder) / parent))
    for each in sorted(folders):
        yield {"type": "directory", "path": each, "oid": "0" * 40, "size": 0}


def _entry(name: str, content: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return {"type": "file", "path": name, "oid": oid, "size": len(content)}
