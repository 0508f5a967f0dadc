"""What the specs of all pods of a run have in common."""

from __future__ import annotations

from typing import Final

from draftmill_operator.render.metadata import Manifest

OF_EVERY_POD: Final[Manifest] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "shareProcessNamespace": True,
}
"""No credentials, no variables of other Services; and SIGTERM ends what has not taken it yet, which the
first process of a namespace of its own would ignore."""
