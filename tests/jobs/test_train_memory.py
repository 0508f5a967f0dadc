"""A trainer keeps what a step has freed."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource
from draftmill_jobs.train.memory import keep_freed_memory

def faults_of_64_mib():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(1 << 26)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_64_mib()
given_back = faults_of_64_mib()
keep_freed_memory()
faults_of_64_mib()
print(given_back, faults_of_64_mib())
"""


def test_freed_memory_is_used_again_without_a_page_fault() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    given_back, kept = (int(faults) for faults in done.stdout.split())
    assert given_back > 100
    assert kept < 10
