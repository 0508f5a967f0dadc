"""Threads for the cores that a container may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftmill_jobs.shared.cores import usable_cores

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", ALL),
        ("100000 100000\n", 1),
        ("150000 100000\n", min(2, ALL)),
        ("10000 100000\n", 1),
        ("100000000 100000\n", ALL),
        ("", ALL),
    ],
)
def test_a_container_uses_no_more_cores_than_its_limit(quota: str, cores: int, tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert usable_cores(file) == cores


def test_without_a_control_group_all_cores_are_used(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "absent") == ALL
