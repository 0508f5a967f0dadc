"""What to do about rows that failed, by the reason in their dead letters. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from draftmill_jobs.engines.failures import FailureKind

REMEDIES: Final[Mapping[str, str]] = {
    FailureKind.CONNECT: (
        "check the endpoint's address, and that no network policy or proxy lies between worker and server"
    ),
    FailureKind.TIMEOUT_CONNECT: (
        "raise generation.connectTimeout, or look why the server is slow to take connections"
    ),
    FailureKind.CONNECTION_LOST: (
        "look for a crash in the server's log; a proxy that cuts long answers must be raised or gone around"
    ),
    FailureKind.TIMEOUT_STALL: (
        "look in the server's log for why it hangs; raise generation.stallTimeout if it is only slow"
    ),
    FailureKind.ABORTED: (
        "look in the server's log for why it gives requests up; lower generation.concurrency if memory lacks"
    ),
    FailureKind.OVERLOADED: "lower generation.concurrency, or add servers",
    FailureKind.PROXY_TIMEOUT: "raise the read timeout of the proxy, or give the server's own address",
    FailureKind.TRY_AGAIN: "raise generation.retries; the log of the server or proxy says what it waits for",
    FailureKind.SERVER_ERROR: "look in the server's log for the error behind it",
    FailureKind.INVALID_RESPONSE: (
        "check that the address is the server's own, and that its version returns token ids"
    ),
    FailureKind.COUNT_MISMATCH: (
        "use another version of the server, or another generation.api: its token ids contradict its counts"
    ),
    FailureKind.BAD_REQUEST: "correct the row in its source as the message says, or leave it out",
    FailureKind.CONTEXT_OVERFLOW: (
        "raise server.contextLength, lower sampling.maxCompletionTokens, or leave the row out"
    ),
    FailureKind.TEMPLATE_REFUSED: "change the row's messages so that the model's chat template takes them",
    FailureKind.PREVIOUS_TURN: "see what became of the earlier turn that the message names",
    FailureKind.UNUSABLE_ROW: "correct the row in its source: it must hold a prompt in a known shape",
}
"""Of each reason that a dead letter can have, as a clause."""


def remedy_for(reason: str) -> str:
    """The remedy; empty for a reason that this version does not write, as files of another one may hold."""
    return REMEDIES.get(reason, "")
