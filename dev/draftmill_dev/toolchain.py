"""Debian packages that this machine lacks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from draftmill_dev import cache
from draftmill_dev.errors import DevError

_LISTS = Path("/var/lib/apt/lists")
_APT = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
_INSTALLED = "install ok installed"


def apt_install(packages: Sequence[str]) -> None:
    """Installs the packages that are missing, and no others; apt's log is `logs/apt` in the cache.

    Raises:
        CommandError: apt failed.
        DevError: Packages are missing and this user may not install them.
    """
    if not _missing(packages):
        return
    folder = cache.cache_root() / "logs" / "apt"
    folder.mkdir(parents=True, exist_ok=True)
    with cache.lock("apt"):
        missing = _missing(packages)
        if not missing:
            return
        if os.geteuid() != 0:
            raise DevError(
                f"These Debian packages are missing: {' '.join(missing)}. Install them, or run this as root."
            )
        path = f"/usr/sbin:/sbin:{os.environ['PATH']}"  # `su` without `-` leaves these out
        environment = {"DEBIAN_FRONTEND": "noninteractive", "PATH": path}
        if not any(_LISTS.glob("*_Packages*")):
            cache.run([*_APT, "update"], folder, env=environment)
        cache.run([*_APT, "install", "--yes", "--no-install-recommends", *missing], folder, env=environment)


def _missing(packages: Sequence[str]) -> list[str]:
    query = ["dpkg-query", "--show", "--showformat", "${Package}\t${Status}\n", *packages]
    try:
        listed = subprocess.run(query, check=False, capture_output=True, text=True).stdout
    except FileNotFoundError as error:
        raise DevError("dpkg is not here: this needs Debian 12.") from error
    installed = {line.split("\t")[0] for line in listed.splitlines() if line.endswith(_INSTALLED)}
    return [package for package in packages if package not in installed]
