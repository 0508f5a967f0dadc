"""What to do about rows without states, by the reason in the quarantine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from draftmill_jobs.engines.failures import FailureKind
from draftmill_jobs.store.checks import RowFault

NOT_STAGED: Final = "not_staged"
"""The server answered, and left no whole file."""

REMEDIES: Final[Mapping[str, str]] = {
    RowFault.WRONG_LENGTH: (
        "keep the server's prefix caching off: with it, states of known tokens are not computed again"
    ),
    RowFault.WRONG_SHAPE: "start every server with the layer ids of the plan and the model of model.path",
    RowFault.OTHER_TOKENS: "use another version of vLLM: its connector gave the states of another request",
    RowFault.NOT_A_NUMBER: (
        "look whether another --dtype, or the model without quantization, computes it; a few may stay out"
    ),
    RowFault.INFINITE: "compute in bfloat16 or float32, which do not overflow where float16 does (--dtype)",
    RowFault.ALL_ZERO: (
        "use another version of vLLM, or fewer rows at once (--max-num-seqs): it staged unwritten memory"
    ),
    NOT_STAGED: "look in the server's log for why it wrote no file; lower inFlightTokens if it had no room",
    FailureKind.CONNECT: "look in the server's log for why it is gone, and check the address in endpoints",
    FailureKind.TIMEOUT_CONNECT: "look why the server is slow to take connections, or what lies between",
    FailureKind.CONNECTION_LOST: (
        "look in the server's log for its last words: a row that ends it mostly needs more memory than it has"
    ),
    FailureKind.TIMEOUT_STALL: "look in the server's log for why it hangs with this row",
    FailureKind.OVERLOADED: "lower inFlightTokens, or set more workers",
    FailureKind.PROXY_TIMEOUT: "give the server's own address, or raise the read timeout of the proxy",
    FailureKind.TRY_AGAIN: "raise retries; the log of the server or proxy says what it waits for",
    FailureKind.SERVER_ERROR: "look in the server's log for the error behind it",
    FailureKind.INVALID_RESPONSE: (
        "check that the address is vLLM's own, and that it was started with its connector for hidden states"
    ),
    FailureKind.BAD_REQUEST: "see what the server says of the row; a few may stay out",
    FailureKind.CONTEXT_OVERFLOW: "start the server with a --max-model-len of the longest row plus one",
}
"""Of each reason for which a row is quarantined, as a clause."""


def remedy_for(reason: str) -> str:
    """The remedy; empty for a reason that this version does not write, as files of another one may hold."""
    return REMEDIES.get(reason, "")
