"""Resolves the requirement files anew: pinned versions with hashes, and no index host named in them."""

from __future__ import annotations

from pathlib import Path

from draftmill_dev import cache, venvs

_PROJECT = venvs.REPOSITORY / "pyproject.toml"
_SOURCES = venvs.REQUIREMENTS / "sources"
_EVERYWHERE = ("--universal", "--python-version", "3.11")
_ONE_TORCH = ("--constraint", str(_SOURCES / "torch.constraints.txt"))
_SERVER = (
    *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36", "--only-binary", ":all:"),
    *("--override", str(_SOURCES / "server.overrides.txt")),
)


def resolve() -> None:
    """Writes every file in `requirements/`.

    Raises:
        CommandError: No set of versions fits, or the index did not answer.
    """
    for extra in ("operator", "jobs"):
        _compile(extra, _PROJECT, "--extra", extra, *_EVERYWHERE)
    for extra in ("train", "dev"):
        _compile(extra, _PROJECT, "--extra", extra, *_EVERYWHERE, *_ONE_TORCH)
    for name in ("bootstrap", "build"):
        _compile(name, _SOURCES / f"{name}.in", *_EVERYWHERE)
    _compile("server", _SOURCES / "server.in", *_SERVER)


def _compile(name: str, source: Path, *options: str) -> None:
    quiet = ("--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet")
    output = venvs.REQUIREMENTS / f"{name}.txt"
    named: list[str | Path] = ["--generate-hashes", "--custom-compile-command", "make requirements"]
    logs = cache.cache_root() / "logs"
    logs.mkdir(exist_ok=True)
    venvs.run_uv(["pip", "compile", source, *options, *named, *quiet, "--upgrade", "-o", output], logs)
