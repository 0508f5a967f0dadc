"""Which server's cache has how a prompt begins: the same one for all that begin alike. Pure.

It is the one of the highest random weight (Thaler, Ravishankar, "Using name-based mappings to increase hit
rates", 1998): one that comes or goes moves only its own share of the prompts, and the workers agree without
a word. How much more than its part it may have is bounded, as in Mirrokni, Thorup, Zadimoghaddam, "Consistent
Hashing with Bounded Loads", 2018.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

from draftmill_jobs.prompts.shapes import Prompt

LONGEST: Final = 1000
"""Characters of a beginning that are compared: what comes later may differ."""
SHORTEST: Final = 256
"""Characters below which a beginning is computed so fast that it does not matter where."""
_BOUND: Final = 1.125  # of the mean load, up to which the preferred server is taken


def prefix_of(prompt: Prompt, template_arguments: dict[str, Any]) -> bytes | None:
    """A digest of how a prompt begins: its tools, and its messages up to the first of the user.

    The turns of a conversation begin alike, as do the samples of a prompt.

    Args:
        prompt: The prompt.
        template_arguments: Those of its chat template, which may write of them at the beginning.

    Returns:
        None when the beginning is too short to matter.
    """
    parts, length = [json.dumps(template_arguments, sort_keys=True)], 0
    for part in _parts(prompt):
        parts.append(part[: LONGEST - length])
        length += len(parts[-1])
        if length >= LONGEST:
            break
    return blake2b("\0".join(parts).encode(), digest_size=8).digest() if length >= SHORTEST else None


def preferred(prefix: bytes, servers: Iterable[str]) -> str:
    """Of the servers, at least one, that of the highest random weight for a beginning."""
    return max(servers, key=lambda name: (blake2b(name.encode(), key=prefix, digest_size=8).digest(), name))


def may_have_more(load: int, loads: Sequence[int]) -> bool:
    """Whether a server may be preferred: with one more request it has no more than an eighth above the mean.

    Args:
        load: Its requests.
        loads: Those of all servers that have room, itself among them.
    """
    return load < math.ceil(_BOUND * (sum(loads) + 1) / len(loads))


def _parts(prompt: Prompt) -> Iterable[str]:
    if prompt.tools:
        yield json.dumps(prompt.tools)
    for message in prompt.messages:
        content = message.get("content")
        yield content if isinstance(content, str) else json.dumps(content)
        if message["role"] == "user":
            return
