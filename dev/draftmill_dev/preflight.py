"""What the local Kubernetes needs of a machine, checked before anything is built."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from draftmill_dev.errors import DevError

LEAST_FREE_BYTES = 20 * 10**9
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS_V1 = ("cpu", "cpuacct", "cpuset", "memory", "pids")
_CONTROLLERS_V2 = ("cpu", "cpuset", "memory", "pids")
_NAMESPACES = ("mnt", "net", "pid")


def check_machine(*, user: int | None = None, cgroups: Path = _CGROUPS) -> None:
    """Raises DevError, with what to do, when a node cannot run here."""
    if (os.geteuid() if user is None else user) != 0:
        raise DevError("The local Kubernetes needs root: run this as root, for example with sudo.")
    _check_kernel()
    missing = _missing_controllers(cgroups)
    if missing:
        raise DevError(
            f"These cgroup controllers are not available below {cgroups}: {', '.join(missing)}. "
            "Pods cannot be run without them: enable them in the kernel, or leave the container you are in."
        )


def check_disk(folders: list[Path], *, least: int = LEAST_FREE_BYTES) -> None:
    """Raises DevError when a file system that the cluster will fill has too little room.

    Args:
        folders: Where things will be written; they need not exist yet.
        least: Bytes that must be free.
    """
    for folder in folders:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        if free < least:
            raise DevError(
                f"{existing} has {free / 1e9:.1f} GB free and {least / 1e9:.0f} GB are needed: make room, "
                "or choose other places by DRAFTMILL_CACHE and --state-dir."
            )


def _missing_controllers(cgroups: Path) -> list[str]:
    unified = cgroups / "cgroup.controllers"
    if unified.exists():
        available = unified.read_text().split()
        return [name for name in _CONTROLLERS_V2 if name not in available]
    return [name for name in _CONTROLLERS_V1 if not (cgroups / name / "cgroup.procs").exists()]


def _check_kernel() -> None:
    if platform.system() != "Linux":
        raise DevError("The local Kubernetes needs Linux: Debian 12 is what it is tested on.")
    for namespace in _NAMESPACES:
        if not Path("/proc/self/ns", namespace).exists():
            raise DevError(f"This kernel has no {namespace} namespaces, which the local Kubernetes lives in.")
    if not _has_overlay():
        raise DevError("This kernel has no overlay file system, which containers need.")


def _has_overlay() -> bool:
    if "overlay" in Path("/proc/filesystems").read_text().split():
        return True
    modules = Path("/lib/modules", platform.release(), "modules.dep")
    return modules.exists() and "/overlay.ko" in modules.read_text()
