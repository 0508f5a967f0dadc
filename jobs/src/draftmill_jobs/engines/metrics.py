"""The few figures that tell whether a server works, read from its Prometheus page. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from draftmill_api.v1alpha1.shared import Engine


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """A server's own view of its work.

    Attributes:
        generated: Tokens generated since it started.
        requests: Requests running and waiting.
        waiting: Of those, the ones in its queue.
        preemptions: How often it took a request's memory for another one since it started; 0 when it does not
            tell.
    """

    generated: float
    requests: float
    waiting: float = 0.0
    preemptions: float = 0.0


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


_PREEMPTIONS = {
    Engine.VLLM: "vllm:num_preemptions_total",
    Engine.SGLANG: "sglang:num_retracted_requests_total",  # num_retracted_reqs is of the last batch alone
}


def read_figures(engine: Engine, page: str) -> ServerFigures | None:
    """Sums each figure over its labels; None when the page does not have them all, or garbles them."""
    generated_name, request_names = _NAMES[engine]
    names = (generated_name, *request_names)
    preemptions = _PREEMPTIONS[engine]
    lines = [
        line for line in page.split("\n") if line.startswith((*names, preemptions))
    ]  # few of many: the rest is not ours
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except (ValueError, IndexError):
        return None
    if not all(math.isfinite(sums.get(name, math.nan)) for name in names):
        return None
    requests = sum(sums[name] for name in request_names)
    preempted = sums.get(preemptions, 0.0)
    if not math.isfinite(preempted):
        return None
    return ServerFigures(sums[generated_name], requests, sums[request_names[1]], preempted)
