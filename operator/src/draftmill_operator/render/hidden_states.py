"""The server that writes hidden states: vLLM with its connector, started from what the plan found."""

from __future__ import annotations

import math
from typing import Final

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.extractrun import ExtractPlan
from draftmill_api.v1alpha1.shared import Model, Server
from draftmill_operator.render.engines import vllm
from draftmill_operator.render.volumes import model_path
from draftmill_operator.render.workload import Sidecar

MEBIBYTE: Final = 1 << 20
_BYTES_PER_VALUE: Final = 4
"""A server in float32; one in bfloat16 writes half of it."""
_BYTES_PER_TOKEN: Final = 16
"""Token id, and its share of the file's header."""
_SLACK: Final = 1.25
_LEAST_SLACK: Final = 256 * MEBIBYTE


def hidden_states_server(model: Model, server: Server, plan: ExtractPlan, in_flight_tokens: int) -> Sidecar:
    """The server of one worker's pod.

    It takes rows one token longer than the longest, since a row as long as the limit is refused.
    """
    on_cpu = server.gpus == 0
    states = vllm.HiddenStates(
        layer_ids=tuple(plan.layer_ids),
        folder=api_names.STAGING_MOUNT,
        on_cpu=on_cpu,
    )
    sized = server.model_copy(update={"context_length": plan.longest_row + 1})
    return Sidecar(
        server=server,
        command=tuple(vllm.command(model, model_path(model), sized, states, uncompiled=on_cpu)),
        staging_bytes=staging_bytes(plan, in_flight_tokens),
        installs_connector=on_cpu,
        env=vllm.UNCOMPILED if on_cpu else {},
    )


def staging_bytes(plan: ExtractPlan, in_flight_tokens: int) -> int:
    """Size of the folder between server and extractor: all tokens on their way, and some room.

    While a server proves itself two further rows are on their way, each of which may be the longest: after a
    connection was lost, beside rows that the same server still has.
    """
    tokens = in_flight_tokens + 2 * plan.longest_row
    width = len(plan.layer_ids) * plan.model.hidden_size
    needed = tokens * (width * _BYTES_PER_VALUE + _BYTES_PER_TOKEN)
    return math.ceil(max(needed * _SLACK, needed + _LEAST_SLACK) / MEBIBYTE) * MEBIBYTE
