"""Names of children: DNS-1035 labels of at most 52 characters, whatever the run is called."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from draftmill_api.v1alpha1.resources import RESOURCES
from draftmill_operator.run import Role, RunKey

NAME_LIMIT: Final = 52
"""Pods of a Job add a hyphen and five characters, and the result has to stay a label of 63."""
STEM_LIMIT: Final = 32
LABEL_VALUE_LIMIT: Final = 63
_HASH_LENGTH: Final = 8
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SHORT_KINDS: Final = {resource.kind: resource.short_names[0] for resource in RESOURCES}


def stem(run: RunKey) -> str:
    """The part of a child's name that stands for the run.

    A name that is too long, has a dot or starts with a digit is sanitised and made unique again by a
    hash of kind, namespace and full name.
    """
    if len(run.name) <= STEM_LIMIT and _DNS_1035.fullmatch(run.name):
        return run.name
    digest = hashlib.sha256(f"{run.kind}\0{run.namespace}\0{run.name}".encode()).hexdigest()
    letters = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-")
    if not letters[:1].isalpha():
        letters = f"r{letters}"
    kept = letters[: STEM_LIMIT - _HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{digest[:_HASH_LENGTH]}"


def child_name(run: RunKey, role: Role, *numbers: int) -> str:
    """The name of a child: `<run>-<kind's short name>-<role>[-<n>]`.

    Raises:
        ValueError: the numbers are so large that the name would pass 52 characters.
    """
    name = "-".join((stem(run), _SHORT_KINDS[run.kind], role.value, *map(str, numbers)))
    if len(name) > NAME_LIMIT:
        raise ValueError(f"child name {name!r} of {run} is longer than {NAME_LIMIT} characters")
    return name


def run_label(run: RunKey) -> str:
    """The run's name as a label value."""
    return run.name if len(run.name) <= LABEL_VALUE_LIMIT else stem(run)
