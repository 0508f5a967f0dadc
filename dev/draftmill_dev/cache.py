"""Things that are built once and kept, keyed by the content of what they are made from.

    folder = cache.build("model", [Path("convert.py"), "smollm2 1.0"], make_model)

`make_model(folder)` fills the folder, and runs its programs by `cache.run`, so
that their output is in the log. The folder is at its final path from the
start, since virtual environments hold their own path; it counts as built only
when its marker file is written. A build that was cut off starts anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from draftmill_dev.errors import CommandError

LOG_NAME = "build.log"
Make = Callable[[Path], object]
_MARKER = ".complete"
_LINES_SHOWN = 12


def cache_root() -> Path:
    """The folder of everything that is built: $DRAFTMILL_CACHE or ~/.cache/draftmill."""
    chosen = os.environ.get("DRAFTMILL_CACHE")
    root = Path(chosen) if chosen else Path.home() / ".cache" / "draftmill"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


def build(name: str, inputs: Iterable[Path | str], make: Make) -> Path:
    """Returns the folder `<cache>/<name>-<hash of inputs>`, made by `make` when it is not there yet.

    A `Path` among the inputs stands for its content (a folder: its files, their
    names and whether they are executable), a `str` for itself. Two processes that
    want the same folder build it once: the second waits for the first.

    Raises:
        CommandError: A program run by `make` failed. The log stays.
    """
    folder = path_of(name, inputs)
    if is_built(folder):
        return folder
    with lock(folder.name):
        if is_built(folder):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        (folder / _MARKER).touch()
    return folder


def path_of(name: str, inputs: Iterable[Path | str]) -> Path:
    """Where `build` with the same arguments puts its folder, built or not."""
    return cache_root() / f"{name}-{content_hash(inputs)}"


def is_built(folder: Path) -> bool:
    """Whether a folder of `path_of` is complete."""
    return (folder / _MARKER).exists()


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Holds a machine-wide lock; the kernel releases it when the holder dies."""
    folder = cache_root() / "locks"
    folder.mkdir(exist_ok=True)
    with open(folder / name, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def content_hash(inputs: Iterable[Path | str]) -> str:
    """12 hex digits over strings and the contents of files and folders, in the order given."""
    digest = hashlib.sha256()
    for value in inputs:
        if isinstance(value, str):
            _add(digest, b"text", value.encode())
        elif value.is_dir():
            for file in sorted(path for path in value.rglob("*") if _counts(path)):
                _add(digest, str(file.relative_to(value)).encode(), _content(file))
        else:
            _add(digest, value.name.encode(), _content(value))
    return digest.hexdigest()[:12]


def run(
    command: Sequence[str | Path],
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Runs a program with its output appended to the log of a folder being built.

    Args:
        command: Program and arguments.
        folder: Where the log file lies.
        env: Variables added to this process's own.
        cwd: Working directory.

    Raises:
        CommandError: The program ended with a code other than 0, or does not exist.
    """
    log = folder / LOG_NAME
    words = [str(word) for word in command]
    with open(log, "ab") as output:
        output.write(f"$ {' '.join(words)}\n".encode())
        output.flush()
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                check=False,
            )
        except FileNotFoundError as error:
            raise CommandError(f"{words[0]} is not installed: {error}", log) from error
    if done.returncode != 0:
        raise CommandError(f"{words[0]} ended with code {done.returncode}:", log, last_lines(log))


def last_lines(log: Path) -> str:
    """The end of a log, indented, for an error message."""
    lines = log.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
    return "\n".join(f"    {line}" for line in lines)


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _content(file: Path) -> bytes:
    executable = b"x" if os.access(file, os.X_OK) else b"-"
    return executable + hashlib.sha256(file.read_bytes()).digest()


def _add(digest: hashlib._Hash, name: bytes, content: bytes) -> None:
    for part in (name, content):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
