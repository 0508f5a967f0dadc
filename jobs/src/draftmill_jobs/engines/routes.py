"""Which route is used for which engine."""

from __future__ import annotations

from typing import assert_never

from draftmill_api.v1alpha1.generation import Api
from draftmill_api.v1alpha1.shared import Engine
from draftmill_jobs.engines.base import Route
from draftmill_jobs.engines.sglang import SglangChat, SglangGenerate
from draftmill_jobs.engines.vllm import VllmChat, VllmGenerate


def route_for(engine: Engine, api: Api) -> Route:
    """The route that `api` means on this engine; `Auto` is the one that gives exact ids on every version."""
    match engine:
        case Engine.VLLM:
            return VllmGenerate() if api is Api.GENERATE else VllmChat()
        case Engine.SGLANG:
            return SglangChat() if api is Api.CHAT else SglangGenerate()
        case _:
            assert_never(engine)
