"""The few figures that tell whether a server works, read from its Prometheus page. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill_api.v1alpha1.shared import Engine


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """A server's own view of its work.

    Attributes:
        generated: Tokens generated since it started.
        requests: Requests running and waiting.
    """

    generated: float
    requests: float


_NAMES = {
    Engine.VLLM: (
        "vllm:generation_tokens_total",
        ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ),
    Engine.SGLANG: (
        "sglang:generation_tokens_total",
        ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ),
}


def read_figures(engine: Engine, page: str) -> ServerFigures | None:
    """Sums each figure over its labels; None when the page does not have them all."""
    generated_name, request_names = _NAMES[engine]
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, _, _ = line.partition("{") if "{" in line else line.partition(" ")
        if name == generated_name or name in request_names:
            sums[name] = sums.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    if generated_name not in sums or not all(name in sums for name in request_names):
        return None
    return ServerFigures(sums[generated_name], sum(sums[name] for name in request_names))
