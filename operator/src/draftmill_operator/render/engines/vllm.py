"""vLLM's command line (`vllm serve`)."""

from __future__ import annotations

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.shared import Model, Server
from draftmill_operator.render.engines.flags import option, switch, tensor_parallel_size


def command(model: Model, model_path: str, server: Server) -> list[str]:
    """The command of a vLLM server on port 8000 of all addresses."""
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
        *(server.extra_args or []),
    ]
