"""Command lines of the inference engines, one module each; adding an engine is one file and one line here."""

from __future__ import annotations

from typing import assert_never

from draftmill_api.v1alpha1.shared import Engine, Model, Server
from draftmill_operator.render.engines import sglang, vllm
from draftmill_operator.render.engines.flags import Drafting


def command(
    model: Model,
    model_path: str,
    server: Server,
    drafting: Drafting | None = None,
    *,
    uncompiled: bool = False,
) -> list[str]:
    """The command that serves the model with the engine the run names; vLLM alone can be `uncompiled`."""
    match server.engine:
        case Engine.VLLM:
            return vllm.command(model, model_path, server, drafting=drafting, uncompiled=uncompiled)
        case Engine.SGLANG:
            return sglang.command(model, model_path, server, drafting)
        case _:
            assert_never(server.engine)
