"""What is built once is built again only when what it is made from has changed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill_dev import cache
from draftmill_dev.errors import CommandError

BUILD = """
from draftmill_dev import cache
print("asked", flush=True)
print(cache.build("thing", ["same"], lambda folder: print("built", flush=True)), flush=True)
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def counting() -> tuple[list[Path], cache.Make]:
    made: list[Path] = []
    return made, made.append


def test_the_same_inputs_are_built_once() -> None:
    made, make = counting()
    first = cache.build("thing", ["a"], make)
    assert cache.build("thing", ["a"], make) == first
    assert made == [first]


def test_other_inputs_have_another_folder() -> None:
    made, make = counting()
    assert cache.build("thing", ["a"], make) != cache.build("thing", ["b"], make)
    assert len(made) == 2


@pytest.mark.parametrize("change", ["content", "name", "mode", "new file"])
def test_a_folder_stands_for_its_content(tmp_path: Path, change: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one")
    before = cache.content_hash([source])
    match change:
        case "content":
            (source / "file").write_text("two")
        case "name":
            (source / "file").rename(source / "other")
        case "mode":
            (source / "file").chmod(0o755)
        case _:
            (source / "new").touch()
    assert cache.content_hash([source]) != before


def test_the_place_of_a_folder_does_not_count(tmp_path: Path) -> None:
    for clone in ("one", "two"):
        (tmp_path / clone).mkdir()
        (tmp_path / clone / "file").write_text("same")
    assert cache.content_hash([tmp_path / "one"]) == cache.content_hash([tmp_path / "two"])


def test_a_failed_build_keeps_its_log_and_is_tried_again() -> None:
    program = [sys.executable, "-c", "print('what went wrong'); raise SystemExit(3)"]
    with pytest.raises(
        CommandError, match=r"ended with code 3:\n    \$ .*\n    what went wrong\n"
    ) as failure:
        cache.build("thing", ["a"], lambda folder: cache.run(program, folder))
    assert "what went wrong" in failure.value.log.read_text()
    made, make = counting()
    cache.build("thing", ["a"], make)
    assert len(made) == 1


def test_a_program_that_is_not_installed_is_named() -> None:
    with pytest.raises(CommandError, match="no-such-program is not installed"):
        cache.build("thing", ["a"], lambda folder: cache.run(["no-such-program"], folder))


def test_a_build_that_was_cut_off_starts_anew(root: Path) -> None:
    half = cache.path_of("thing", ["a"])
    half.mkdir(parents=True)
    (half / "rest").touch()
    assert not (cache.build("thing", ["a"], lambda folder: (folder / "whole").touch()) / "rest").exists()


def test_two_processes_build_the_same_thing_once() -> None:
    folder = cache.path_of("thing", ["same"])
    with contextlib.ExitStack() as running:
        with cache.lock(folder.name):
            both = [running.enter_context(start_building()) for _ in range(2)]
            for process in both:
                assert process.stdout is not None
                assert process.stdout.readline() == "asked\n"
        outputs = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert sorted(outputs) == sorted([[str(folder)], ["built", str(folder)]])


def start_building() -> subprocess.Popen[str]:
    environment = {"DRAFTMILL_CACHE": str(cache.cache_root()), "PYTHONPATH": ":".join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True, env=environment)
