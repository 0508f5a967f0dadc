"""The staging folder: what is a whole file, and what is deleted when."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import ItemsView
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from draftmill_api.store import ComputedIn
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.extract.staging import Staging, StagingError

HOUR = 3600.0


def forbidden(*_: object, **__: object) -> None:
    """What the system says where root, as whom tests may run, may do all."""
    raise PermissionError(errno.EACCES, "Permission denied")


def stage(staging: Staging, folder: Path, name: str = "1") -> Path:
    path = folder / f"cmpl-{staging.prefix}{name}.safetensors"
    states = np.ones((3, 2, 4), np.float32)
    save_file({"hidden_states": states, "token_ids": np.arange(3, dtype=np.int64)}, path)
    path.with_name(path.name + ".lock").touch()
    return path


async def test_a_whole_file_is_read_where_it_is_mapped_and_counted_until_it_is_discarded(
    tmp_path: Path,
) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)

    staged = await staging.read(path)

    assert staged.states.shape == (3, 2, 4)
    assert staged.token_ids.tolist() == [0, 1, 2]
    assert staged.computed_in is ComputedIn.FLOAT32
    assert staging.bytes == path.stat().st_size
    staging.discard(path)
    assert (staging.bytes, path.exists()) == (0, False)


@pytest.mark.parametrize("size", [0, 4, 60, -1])
async def test_a_file_cut_anywhere_is_none(tmp_path: Path, size: int) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    whole = len(path.read_bytes())
    os.truncate(path, size % whole)

    with pytest.raises(StagingError):
        await staging.read(path)


async def test_a_file_without_states_is_none(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    save_file({"token_ids": np.arange(3)}, path)

    with pytest.raises(StagingError, match="has no hidden_states"):
        await staging.read(path)


async def test_a_file_of_states_in_a_dtype_of_no_model_is_none(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    save_file({"hidden_states": np.ones((3, 2, 4), np.int64), "token_ids": np.arange(3)}, path)

    with pytest.raises(StagingError, match="has tensors of dtype 'I64'"):
        await staging.read(path)


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def make_unreadable(path: Path) -> None:
    """Puts a folder in a file's place: nobody can read it or delete it as a file, not even root."""
    path.unlink()
    path.mkdir()


async def test_a_lock_that_cannot_be_read_is_as_a_file_that_cannot(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    make_unreadable(lock_of(path))

    with pytest.raises(StagingError, match=r"1\.safetensors\.lock cannot be read: Is a directory"):
        await staging.read(path)


async def test_of_a_file_that_is_anothers_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    monkeypatch.setattr(Path, "open", forbidden)

    with pytest.raises(StagingError, match="let server and extractor run as one user"):
        await staging.read(path)


def test_a_file_whose_lock_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    os.utime(path, (0, 0))
    make_unreadable(lock_of(path))
    staging.forget(f"{staging.prefix}1")

    staging.purge_all()
    staging.purge_forgotten()
    staging.purge_old()

    assert path.exists()


def test_after_a_file_that_cannot_be_deleted_no_other_is_expected(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    make_unreadable(path)

    staging.discard(path)

    with pytest.raises(JobFailedError, match=r"cannot delete .*1\.safetensors: Is a directory"):
        staging.expected(str(path))
    assert not lock_of(path).exists()


def test_a_folder_in_which_nothing_may_be_deleted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    monkeypatch.setattr(Path, "unlink", forbidden)

    staging.discard(path)

    with pytest.raises(JobRefusedError, match="let server and extractor run as one user") as refused:
        staging.expected(str(path))
    assert refused.value.reason == "StagingMismatch"


def test_a_file_of_others_that_cannot_be_deleted_is_theirs(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(Staging(tmp_path, "other-w0"), tmp_path)
    make_unreadable(path)
    os.utime(path, (0, 0))

    staging.purge_old()

    assert staging.expected(str(path)) == path


def test_a_folder_that_cannot_be_listed_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "staging").touch()

    with pytest.raises(JobFailedError, match=r"cannot list .*staging: Not a directory"):
        Staging(tmp_path / "staging", "run-w0").purge_all()


def test_a_file_in_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobRefusedError, match="mount one folder at the same path in both"):
        Staging(tmp_path, "run-w0").expected("/tmp/other/1.safetensors")


def test_a_file_that_nobody_asked_for_is_deleted_when_it_is_old(tmp_path: Path) -> None:
    now = 1e9
    staging = Staging(tmp_path, "run-w0", now=lambda: now)
    old, young = stage(staging, tmp_path, "old"), stage(staging, tmp_path, "young")
    os.utime(old, (now - HOUR, now - HOUR))
    os.utime(young, (now - 60, now - 60))

    staging.purge_old()

    assert not old.exists()
    assert young.exists()


def test_a_file_that_is_being_written_is_never_deleted(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    path = stage(staging, tmp_path)
    os.utime(path, (0, 0))
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        staging.purge_old()
        staging.purge_all()

    assert path.exists()


def test_the_file_of_a_lost_request_is_deleted_as_soon_as_its_server_has_let_go_of_it(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "run-w0")
    lost, awaited = stage(staging, tmp_path, "lost"), stage(staging, tmp_path, "awaited")
    staging.forget(f"{staging.prefix}lost")

    with lost.with_name(lost.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        staging.purge_forgotten()
        assert lost.exists()
    staging.purge_forgotten()

    assert sorted(tmp_path.iterdir()) == [awaited, awaited.with_name(awaited.name + ".lock")]


def test_two_threads_may_give_up_looking_for_one_file_at_the_same_time(tmp_path: Path) -> None:
    class Interrupted(dict[str, float]):
        """Between a thread's look and its deed another one does the same."""

        is_met = False

        def items(self) -> ItemsView[str, float]:  # type: ignore[override]
            known = dict(self).items()
            if not self.is_met:
                self.is_met = True
                staging.purge_forgotten()
            return known

    clock = [0.0]
    staging = Staging(tmp_path, "run-w0", lambda: clock[0])
    staging._forgotten = Interrupted()
    staging.forget("lost")
    clock[0] = HOUR

    staging.purge_forgotten()

    assert staging._forgotten == {}


def test_what_a_server_still_writes_for_an_earlier_start_is_deleted_afterwards(tmp_path: Path) -> None:
    left = stage(Staging(tmp_path, "run-w0"), tmp_path)
    staging = Staging(tmp_path, "run-w0")
    with left.with_name(left.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        staging.purge_all()

    staging.purge_forgotten()

    assert list(tmp_path.iterdir()) == []


def test_files_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    stranger = tmp_path / "cmpl-1234.safetensors"
    stranger.touch()
    os.utime(stranger, (0, 0))
    staging = Staging(tmp_path, "run-w0")

    staging.purge_all()
    staging.purge_old()

    assert stranger.exists()
