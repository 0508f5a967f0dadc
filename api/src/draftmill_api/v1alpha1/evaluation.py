"""Evaluation of a drafter: the target as a server, once plain and once with the drafter."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from draftmill_api.base import ApiModel, Rule
from draftmill_api.v1alpha1.shared import Server


class Evaluation(ApiModel):
    """How a trained drafter is measured at work, on held-out prompts."""

    RULES = (
        Rule(
            "self.server.replicas == 1",
            "an evaluation has one server at a time: leave server.replicas out",
        ),
        Rule(
            "!has(self.server.keepAfterSuccess) && !has(self.server.keepAfterFailure)",
            "the server of an evaluation is part of its pod and cannot outlive it; remove keepAfterSuccess "
            "and keepAfterFailure",
        ),
    )

    server: Server = Field(
        description="The server of the target: the operator starts it twice, one after the other, without "
        "the drafter and with it."
    )
    draft_tokens: int = Field(
        default=3, ge=1, le=16, description="Tokens that the drafter drafts in a cycle."
    )
    max_rows: int = Field(default=64, ge=1, le=100_000, description="Held-out prompts to ask.")
    max_tokens: int = Field(default=256, ge=1, le=1_000_000, description="Most tokens of an answer.")
    concurrency: list[Annotated[int, Field(ge=1, le=4096)]] = Field(
        default=[1],
        min_length=1,
        max_length=8,
        description="Requests at a time; all prompts are asked at each of them, one after another.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
