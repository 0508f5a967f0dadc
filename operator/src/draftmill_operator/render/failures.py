"""Rules by which the Job controller judges a pod that failed."""

from __future__ import annotations

from draftmill_api import names as api_names
from draftmill_api.exitcode import ExitCode
from draftmill_operator.render.metadata import Manifest


def fails_for_good() -> Manifest:
    """A job that refuses ends its Job: no further try can succeed."""
    return _on_exit(ExitCode.CONFIGURATION, "FailJob")


def forgiving_rules() -> list[Manifest]:
    """A refusal ends the Job; what was interrupted or disrupted does not count."""
    return [
        fails_for_good(),
        _on_exit(ExitCode.INTERRUPTED, "Ignore"),
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _on_exit(code: ExitCode, action: str) -> Manifest:
    return {
        "action": action,
        "onExitCodes": {
            "containerName": api_names.JOB_CONTAINER,
            "operator": "In",
            "values": [int(code)],
        },
    }
