"""Images that cannot be pulled: one reason and the cause, whichever turn the kubelet is at.

After each try it gives the cause, and until the next one it says ImagePullBackOff. A kubelet before 1.32 does
not repeat the cause then.
"""

from __future__ import annotations

import re
from typing import Any, Final

from draftmill_operator.observe.types import Problem

IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
_AFTER_A_TRY: Final = ("ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed")
"""What takes turns with ImagePullBackOff; ErrImageNeverPull, InvalidImageName and the like do not change."""
_BACK_OFF: Final = re.compile(
    rf'Back-off pulling image "[^"]*": (?:(?:{"|".join(_AFTER_A_TRY)}): )?(.+)', re.DOTALL
)
_FIELDS: Final = ("initContainerStatuses", "containerStatuses")
_Object = dict[str, Any]


def pull_problem(container: _Object) -> Problem | None:
    """Why a container has no image, from its status; None where it waits for something else."""
    reason, message = _waiting(container)
    if reason in _AFTER_A_TRY:
        return Problem(IMAGE_PULL_BACK_OFF, message)
    if reason == IMAGE_PULL_BACK_OFF:
        return Problem(IMAGE_PULL_BACK_OFF, _cause(container) or message)
    return None


def with_known_causes(pod: _Object, before: _Object) -> _Object:
    """The pod; where its kubelet leaves out why an image cannot be pulled, with what it said `before`."""
    causes = {
        each["name"]: cause
        for field in _FIELDS
        for each in _containers(before, field)
        if (cause := _cause(each))
    }
    if not causes:
        return pod
    told = {
        field: [_with_cause(each, causes.get(each["name"])) for each in found]
        for field in _FIELDS
        if (found := _containers(pod, field))
    }
    return pod | {"status": pod.get("status", {}) | told}


def _with_cause(container: _Object, cause: str | None) -> _Object:
    reason, message = _waiting(container)
    if cause is None or reason != IMAGE_PULL_BACK_OFF or _cause(container):
        return container
    return container | {"state": {"waiting": {"reason": reason, "message": f"{message}: {cause}"}}}


def _cause(container: _Object) -> str | None:
    """What was said after the last try, if it is known."""
    reason, message = _waiting(container)
    if reason in _AFTER_A_TRY:
        return message
    found = _BACK_OFF.match(message) if reason == IMAGE_PULL_BACK_OFF else None
    return found[1] if found is not None else None


def _waiting(container: _Object) -> tuple[str, str]:
    waiting = (container.get("state") or {}).get("waiting") or {}
    return waiting.get("reason", ""), waiting.get("message", "")


def _containers(pod: _Object, field: str) -> list[_Object]:
    found: list[_Object] = (pod.get("status") or {}).get(field) or []
    return found
