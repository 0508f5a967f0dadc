"""What a vLLM server says of its own work."""

from __future__ import annotations

import re
import urllib.request

_PROMPT_TOKENS = re.compile(rb"^vllm:prompt_tokens_total\{[^}]*\} ([0-9.e+]+)", re.MULTILINE)


def prompt_tokens(url: str) -> float:
    """Prompt tokens that the server has worked on since it started; 0 while it does not answer.

    The counter grows with each request that the server takes up.
    """
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:  # noqa: S310  an address of ours
            found = _PROMPT_TOKENS.search(answer.read())
    except OSError:
        return 0.0
    return float(found.group(1)) if found else 0.0
