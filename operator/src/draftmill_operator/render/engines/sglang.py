"""SGLang's command line (`sglang.launch_server`)."""

from __future__ import annotations

from draftmill_api import names as api_names
from draftmill_api.v1alpha1.shared import Model, Server
from draftmill_operator.render.engines.flags import Drafting, option, switch, tensor_parallel_size


def command(model: Model, model_path: str, server: Server, drafting: Drafting | None = None) -> list[str]:
    """The command of an SGLang server on port 8000 of all addresses.

    Metrics are off by default in SGLang; the generator reads its sign of life from them.
    """
    cache = server.hierarchical_cache_gi_b_per_rank
    return [
        "python3",
        "-m",
        "sglang.launch_server",
        *option("--model-path", model_path),
        *option("--served-model-name", model.name),
        *option("--host", "0.0.0.0"),  # noqa: S104  the pod's own network
        *option("--port", api_names.SERVER_PORT),
        *option("--tensor-parallel-size", tensor_parallel_size(server)),
        *option("--context-length", server.context_length),
        *option("--mem-fraction-static", server.mem_fraction_static),
        *option("--kv-cache-dtype", server.kv_cache_dtype),
        *switch("--enable-hierarchical-cache", on=cache is not None),
        *option("--hicache-size", cache),
        *switch("--trust-remote-code", on=model.trust_remote_code),
        "--enable-metrics",
        *(_drafting(drafting) if drafting is not None else []),
        *(server.extra_args or []),
    ]


def _drafting(drafting: Drafting) -> list[str]:
    """A chain of drafts, which the target checks together with the token that it has."""
    return [
        *option("--speculative-algorithm", "EAGLE3"),
        *option("--speculative-draft-model-path", drafting.folder),
        *option("--speculative-num-steps", drafting.tokens),
        *option("--speculative-eagle-topk", 1),
        *option("--speculative-num-draft-tokens", drafting.tokens + 1),
    ]
