"""What the engines' command lines have in common."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.v1alpha1.shared import Server


@dataclass(frozen=True)
class Drafting:
    """That the server drafts with an EAGLE-3 drafter."""

    folder: str
    tokens: int
    """Of a cycle."""


def option(name: str, value: object | None) -> list[str]:
    """`--name value`, or nothing when there is no value."""
    return [] if value is None else [name, str(value)]


def switch(name: str, *, on: bool) -> list[str]:
    """`--name`, or nothing."""
    return [name] if on else []


def tensor_parallel_size(server: Server) -> int:
    """As given, else one rank for each GPU, and one on CPU."""
    return server.tensor_parallel_size or max(1, server.gpus)
