"""The folder to which a vLLM server writes states: reading its files, and leaving none behind.

The server writes a file under its final name and holds an exclusive lock on `<name>.lock` meanwhile. It only
logs what goes wrong. So a file is read when its lock is free, and may then be missing, short or no such file.

Every file must go when it has been read: the folder has room for those on their way, and no more.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import mmap
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from draftmill_api.store import ComputedIn
from draftmill_jobs.errors import JobError, JobFailedError, JobRefusedError
from draftmill_jobs.store.checks import StateArray
from draftmill_jobs.store.tensors import TensorFileError, TensorPlace, parse_header

log = logging.getLogger(__name__)

_LOCK: Final = ".lock"
_OURS: Final = "draftmill-"
_LOCK_SECONDS: Final = 120.0  # that a server may take to write one file
_MISSING_SECONDS: Final = 5.0  # that a lock file may take to be seen
_FIRST_LOOK, _LONGEST_LOOK = 0.002, 0.1  # seconds between looks at a lock
_ORPHAN_SECONDS: Final = 900.0  # after which a file that nobody waits for is deleted
_STRANGER_SECONDS: Final = 6 * 3600.0  # the same for those of other extractors, which use the folder too
_STATES, _IDS = "hidden_states", "token_ids"
_COMPUTED_IN: Final = {
    "BF16": ComputedIn.BFLOAT16,
    "F16": ComputedIn.FLOAT16,
    "F32": ComputedIn.FLOAT32,
}
_ONE_USER: Final = "let server and extractor run as one user, or in a group that may read and delete there"


class StagingError(Exception):
    """There is no whole file; asking again may help. The message says what there is."""


@dataclass(frozen=True, slots=True)
class StagedStates:
    """What a server wrote for a request; views of the mapped file.

    Attributes:
        states: Of whatever shape the server gave them.
        token_ids: `int32[T]`.
        computed_in: What the server wrote.
    """

    path: Path
    states: StateArray
    token_ids: NDArray[np.int32]
    computed_in: ComputedIn
    size: int

    @property
    def is_half(self) -> bool:
        """Whether they were computed in 16 bits."""
        return self.computed_in is not ComputedIn.FLOAT32


class Staging:
    """The part of the folder that is this worker's: files of requests whose ids begin with `prefix`."""

    def __init__(self, folder: Path, owner: str, now: Callable[[], float] = time.time) -> None:
        """Takes the folder and what tells this worker from all others that use it."""
        self._folder = folder
        self.prefix = f"{_OURS}{owner}-"
        self._now = now
        self._sizes: dict[Path, int] = {}
        self._forgotten: dict[str, float] = {}  # parts of names, and since when
        self._undeletable: tuple[Path, OSError] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of files that have been read and are not yet deleted."""
        return sum(tuple(self._sizes.values()))  # other threads delete

    def expected(self, said: str) -> Path:
        """The file that a server names.

        Raises:
            JobRefusedError: It is not in the folder: every file would be sought in vain.
            JobError: One that came before cannot be deleted: the folder would fill.
        """
        if self._undeletable is not None:
            raise _storage_error("delete", *self._undeletable)
        path = Path(said)
        if path.parent.resolve() != self._folder.resolve():
            raise JobRefusedError(
                "StagingMismatch",
                f"the server writes states to {path.parent}, and the extractor reads them in {self._folder}; "
                "mount one folder at the same path in both, and give it to the server as shared_storage_path",
            )
        return self._folder / path.name

    async def read(self, path: Path) -> StagedStates:
        """Waits for the server to let go of a file, and maps it.

        Raises:
            StagingError: It is missing, short, or not what the server writes.
        """
        await self._until_free(path)
        staged = _map(path)
        self._sizes[path] = staged.size
        return staged

    def discard(self, path: Path) -> None:
        """Deletes a file and its lock; if that fails, `expected` tells. May be called from any thread."""
        self._sizes.pop(path, None)
        self._delete(path)

    def forget(self, request: str) -> None:
        """The file of a request, or of this name, is waited for no longer: `purge_forgotten` deletes it."""
        self._forgotten[request] = self._now()

    def purge_forgotten(self) -> None:
        """Deletes what servers wrote for requests that were lost, as soon as they have let go of it.

        A server that died with many answers on their way leaves as many files, for which the folder has no
        room beside those of its successor.
        """
        now = self._now()
        known = tuple(self._forgotten.items())  # the event loop adds to it meanwhile
        for request, since in known:
            if now - since > _ORPHAN_SECONDS:
                self._forgotten.pop(request, None)  # as another thread may do at the same time
        for path in self._files() if known else ():
            if any(request in path.name for request, _ in known) and _is_free(path):
                self._delete(path)

    def purge_all(self) -> None:
        """Deletes what this worker left before it was started again."""
        for path in self._files():
            if self.prefix not in path.name:
                continue
            log.info("staged file %s is of an earlier start and is deleted", path.name)
            if _is_free(path):
                self._delete(path)
            else:
                self.forget(path.name)

    def purge_old(self) -> None:
        """Deletes files that nobody waits for any longer."""
        now = self._now()
        for path in self._files():
            if path in self._sizes:
                continue
            with suppress(FileNotFoundError):
                limit = _ORPHAN_SECONDS if self.prefix in path.name else _STRANGER_SECONDS
                lock = _lock_of(path)
                age = now - (path if path.exists() else lock).stat().st_mtime
                if age > limit and _is_free(path):
                    log.warning("staged file %s was never asked for and is deleted", path.name)
                    _delete(path)

    def _files(self) -> list[Path]:
        """Files of extractors; one of which there is only the lock is among them."""
        try:
            names = {path.name.removesuffix(_LOCK) for path in self._folder.iterdir() if _OURS in path.name}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _storage_error("list", self._folder, error) from error
        return [self._folder / name for name in sorted(names)]

    def _delete(self, path: Path) -> None:
        """Deletes a file of ours."""
        self._undeletable = _delete(path) or self._undeletable

    async def _until_free(self, path: Path) -> None:
        began, look = time.monotonic(), _FIRST_LOOK
        while True:
            waited = time.monotonic() - began
            try:
                if not _is_locked(path, must_exist=True):
                    return
                if waited > _LOCK_SECONDS:
                    raise StagingError(f"the server has been writing {path.name} for {waited:.0f} s")
            except FileNotFoundError:
                if waited > _MISSING_SECONDS:
                    raise StagingError(f"there is no lock file for {path.name}") from None
            await asyncio.sleep(look)
            look = min(_LONGEST_LOOK, look * 2)


def _is_free(path: Path) -> bool:
    """Whether nobody writes a file; not if that cannot be found out."""
    try:
        return not _is_locked(path)
    except StagingError:
        return False


def _is_locked(path: Path, *, must_exist: bool = False) -> bool:
    try:
        with _lock_of(path).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except FileNotFoundError:
        if must_exist:
            raise
        return False
    except OSError as error:
        raise _unreadable(_lock_of(path), error) from error


def _map(path: Path) -> StagedStates:
    try:
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except FileNotFoundError:
        raise StagingError(f"the server let go of {path.name} without having written it") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise StagingError(f"{path.name} cannot be read: {error}") from error
    try:
        places = parse_header(memoryview(memory), len(memory))
        if missing := {_STATES, _IDS} - places.keys():
            raise StagingError(f"{path.name} has no {' and no '.join(sorted(missing))}")
        computed_in = _COMPUTED_IN[places[_STATES].dtype]
        states, ids = _array(memory, places[_STATES]), _array(memory, places[_IDS])
    except TensorFileError as error:
        raise StagingError(f"{path.name}: {error}") from error
    except KeyError as error:
        raise StagingError(f"{path.name} has tensors of dtype {error}") from error
    if states.dtype == np.float16:
        states = states.astype(np.float32)
    return StagedStates(path, states, ids.astype(np.int32), computed_in, len(memory))


def _array(memory: mmap.mmap, place: TensorPlace) -> NDArray[Any]:
    dtypes = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "I64": np.int64, "I32": np.int32}
    return np.ndarray(place.shape, dtypes[place.dtype], memory, place.begin)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + _LOCK)


def _delete(path: Path) -> tuple[Path, OSError] | None:
    """Deletes a file and its lock. Returns which of them cannot be, and why."""
    failure = None
    for each in (path, _lock_of(path)):
        try:
            each.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot delete %s: %s", each, error)
            failure = (each, error)
    return failure


def _unreadable(path: Path, error: OSError) -> StagingError:
    hint = f"; {_ONE_USER}" if isinstance(error, PermissionError) else ""
    return StagingError(f"{path.name} cannot be read: {error.strerror}{hint}")


def _storage_error(act: str, path: Path, error: OSError) -> JobError:
    sentence = f"cannot {act} {path}: {error.strerror}"
    if isinstance(error, PermissionError):
        return JobRefusedError("StagingMismatch", f"{sentence}; {_ONE_USER}")
    return JobFailedError("StorageFailed", sentence)
