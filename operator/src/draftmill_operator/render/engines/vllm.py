"""vLLM's command line (`vllm serve`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.shared import Model, Server
from draftmill_operator.render.engines.flags import Drafting, option, switch, tensor_parallel_size


@dataclass(frozen=True)
class Connector:
    """A KV connector: its class, and the module that vLLM imports it from, unless it is vLLM's own."""

    name: str
    module: str | None = None


STOCK_CONNECTOR: Final = Connector("ExampleHiddenStatesConnector")
"""vLLM's own; it needs CUDA, for it pins memory."""
CPU_CONNECTOR: Final = Connector("CpuHiddenStatesConnector", "draftmill_cpu_connector")
"""Brought by the job image (`install-connector`)."""
UNCOMPILED: Final = {"TORCHDYNAMO_DISABLE": "1"}
"""On CPU vLLM compiles even the counting of likelier tokens, by a C++ compiler that few images of it have."""


@dataclass(frozen=True)
class HiddenStates:
    """That the server writes hidden states, and which."""

    layer_ids: tuple[int, ...]
    """In the "entering layer" convention, which is vLLM's too; the number of layers is the last state."""
    folder: str
    on_cpu: bool
    """It is written by another connector there."""


def command(
    model: Model,
    model_path: str,
    server: Server,
    states: HiddenStates | None = None,
    drafting: Drafting | None = None,
    *,
    uncompiled: bool = False,
) -> list[str]:
    """The command of a vLLM server on port 8000 of all addresses.

    One that is `uncompiled` needs the environment `UNCOMPILED` too.
    """
    return [
        "vllm",
        "serve",
        model_path,
        *option("--served-model-name", model.name),
        *option("--host", "0.0.0.0"),  # noqa: S104  the pod's own network
        *option("--port", api_names.SERVER_PORT),
        *option("--tensor-parallel-size", tensor_parallel_size(server)),
        *option("--max-model-len", server.context_length),
        *option("--gpu-memory-utilization", server.mem_fraction_static),
        *option("--kv-cache-dtype", server.kv_cache_dtype),
        *switch("--trust-remote-code", on=model.trust_remote_code),
        *(_drafting(drafting) if drafting is not None else []),
        *switch("--enforce-eager", on=uncompiled),
        *(server.extra_args or []),
        # Of two equal flags the later one counts, and nobody could tell states of other layers from these.
        *(_hidden_states(states) if states is not None else []),
    ]


def _hidden_states(states: HiddenStates) -> list[str]:
    """States are made by a draft method that drafts nothing, and handed over as if they were a KV cache.

    A prefix that was found in the cache would not be computed, and its states would be missing.
    """
    config = {"eagle_aux_hidden_state_layer_ids": list(states.layer_ids)}
    drafting = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": config},
    }
    connector = CPU_CONNECTOR if states.on_cpu else STOCK_CONNECTOR
    transfer: dict[str, Any] = {"kv_connector": connector.name}
    if connector.module is not None:
        transfer["kv_connector_module_path"] = connector.module
    transfer["kv_role"] = "kv_producer"
    transfer["kv_connector_extra_config"] = {"shared_storage_path": states.folder}
    return [
        "--no-enable-prefix-caching",
        *option("--speculative-config", json.dumps(drafting)),
        *option("--kv-transfer-config", json.dumps(transfer)),
    ]


def _drafting(drafting: Drafting) -> list[str]:
    config = {"method": "eagle3", "model": drafting.folder, "num_speculative_tokens": drafting.tokens}
    return option("--speculative-config", json.dumps(config))
