"""A real vLLM on CPU that serves the toy target, with a drafter or without."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.vllm_server import serving_vllm

NAME = "toy"


def serving(
    target: Path, log: Path, *, drafter: Path | None, draft_tokens: int
) -> AbstractContextManager[str]:
    """Runs a server that computes in float32; yields its address.

    Args:
        target: Folder of the target; it has no tokenizer, and prompts are token ids.
        log: Where the server's words go.
        drafter: Folder of the drafter, if it shall draft.
        draft_tokens: In a cycle.
    """
    flags = ["--max-model-len", "256", "--skip-tokenizer-init", "--no-enable-prefix-caching"]
    if drafter is not None:
        speculative = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": draft_tokens}
        flags += ["--speculative-config", json.dumps(speculative)]
    return serving_vllm(target, flags, log, name=NAME)
