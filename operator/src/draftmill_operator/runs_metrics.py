"""Metrics of runs, collected from the cache when they are asked for, so that they vanish with the run."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftmill_operator.observe.store import Kind, Store

_PREFIX = "draftmill_operator_synthrun"
_ROWS = ("total", "ok", "truncated", "malformed", "errors", "skipped")


class RunsCollector(Collector):
    """What the cache knows of each run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        """Nothing ahead of time: the series depend on the runs there are."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Info, phase and rows of every run."""
        info = GaugeMetricFamily(f"{_PREFIX}_info", "A run.", labels=["namespace", "name", "model"])
        phase = GaugeMetricFamily(
            f"{_PREFIX}_phase", "Phase of a run.", labels=["namespace", "name", "phase"]
        )
        rows = GaugeMetricFamily(f"{_PREFIX}_rows", "Rows of a run.", labels=["namespace", "name", "state"])
        for raw in self._store.all(Kind.RUN):
            where = [raw["metadata"]["namespace"], raw["metadata"]["name"]]
            status = raw.get("status") or {}
            info.add_metric([*where, raw["spec"]["model"]["name"]], 1)
            phase.add_metric([*where, status.get("phase", "Pending")], 1)
            progress = status.get("progress") or {}
            for state in _ROWS:
                if state in progress:
                    rows.add_metric([*where, state], progress[state])
        yield from (info, phase, rows)
