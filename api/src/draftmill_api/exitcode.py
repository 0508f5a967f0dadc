"""The exit codes of every job."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a job's end means to the operator and to scripts."""

    DONE = 0
    FAILED = 1
    """Something went wrong that another attempt may not meet again."""
    CONFIGURATION = 2
    """No attempt can succeed until a person changes something: the run is Failed at once."""
    PAUSED = 3
    """The error policy has tripped, and nobody is there who could raise it: outside Kubernetes only."""
    INTERRUPTED = 75
    """Stopped by SIGTERM with work left; the files are whole and the next attempt goes on."""
