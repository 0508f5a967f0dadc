"""Metrics of runs, collected from the cache when they are asked for, so that they vanish with the run."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftmill_operator.observe.store import RUN_KINDS, Kind, Object, Store

_ROWS = ("total", "ok", "truncated", "malformed", "errors", "skipped", "rows", "quarantined")
_COUNTED = {
    Kind.SYNTH_RUN: ("rows", _ROWS),
    Kind.EXTRACT_RUN: ("rows", _ROWS),
    Kind.DRAFTER_TRAIN: ("steps", ("total", "step")),
}
"""What a kind's progress counts, and its counts of that."""
_NAMED = ["namespace", "name"]


class RunsCollector(Collector):
    """What the cache knows of each run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        """Nothing ahead of time: the series depend on the runs there are."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Info, phase and counts of every run, a family of each for each kind."""
        for kind in RUN_KINDS:
            yield from self._collect(kind)

    def _collect(self, kind: Kind) -> Iterator[Metric]:
        prefix = f"draftmill_operator_{kind.value.lower()}"
        info = GaugeMetricFamily(f"{prefix}_info", "A run.", labels=[*_NAMED, "model"])
        phase = GaugeMetricFamily(f"{prefix}_phase", "Phase of a run.", labels=[*_NAMED, "phase"])
        unit, states = _COUNTED[kind]
        counts = GaugeMetricFamily(
            f"{prefix}_{unit}", f"{unit.capitalize()} of a run.", labels=[*_NAMED, "state"]
        )
        for raw in self._store.all(kind):
            where = [raw["metadata"]["namespace"], raw["metadata"]["name"]]
            status = raw.get("status") or {}
            info.add_metric([*where, _model(raw)], 1)
            phase.add_metric([*where, status.get("phase", "Pending")], 1)
            progress = status.get("progress") or {}
            for state in states:
                if state in progress:
                    counts.add_metric([*where, state], progress[state])
        yield from (info, phase, counts)


def _model(raw: Object) -> str:
    """Name of the run's model, its own or inherited; empty while it is not known."""
    inherited = (raw.get("status") or {}).get("input") or {}
    spec = raw["spec"]
    model: dict[str, str] = spec.get("model") or spec.get("target") or inherited.get("model") or {}
    return model.get("name", "")
