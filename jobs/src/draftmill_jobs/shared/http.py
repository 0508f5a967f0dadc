"""What a job serves while it runs: `/progress`, `/metrics`, `/healthz`."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftmill_api.names import JOB_HTTP_PORT
from draftmill_api.progress import Progress, ServerProgress
from draftmill_api.v1alpha1.extractstatus import ExtractProgress
from draftmill_api.v1alpha1.trainstatus import TrainProgress
from draftmill_jobs.errors import JobRefusedError

log = logging.getLogger(__name__)

_ROW_STATES = ("ok", "truncated", "malformed", "errors", "skipped", "not_admitted")


def default_port() -> int | None:
    """In a pod, the port that the operator polls; elsewhere None: nothing is served."""
    return JOB_HTTP_PORT if _in_pod() else None


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


@asynccontextmanager
async def serve(port: int | None, progress: Callable[[], Progress]) -> AsyncIterator[int | None]:
    """Serves while the block runs; yields the port in use. 0 chooses a free one, None serves nothing.

    In a pod it listens on all addresses, elsewhere on 127.0.0.1.

    Raises:
        JobRefusedError: The port cannot be listened on.
    """
    if port is None:
        yield None
        return
    pages = _Pages(progress)
    app = web.Application()
    app.router.add_get("/progress", pages.progress)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/healthz", pages.healthz)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, None if _in_pod() else "127.0.0.1", port)
        try:
            await site.start()
        except OSError as error:
            raise _port_refused(port, error) from error
        bound = int(runner.addresses[0][1])
        log.info("serving /progress, /metrics and /healthz on port %d", bound)
        yield bound
    finally:
        await runner.cleanup()


def _port_refused(port: int, error: OSError) -> JobRefusedError:
    why = os.strerror(error.errno) if error.errno else str(error)
    return JobRefusedError(
        "PortUnavailable",
        f"cannot serve /progress on port {port}: {why}; choose another by --http-port, or 0 for a free one",
    )


class _Pages:
    def __init__(self, progress: Callable[[], Progress]) -> None:
        self._progress = progress

    async def progress(self, _: web.Request) -> web.Response:
        return web.json_response(text=self._progress().model_dump_json(by_alias=True))

    async def metrics(self, _: web.Request) -> web.Response:
        registry = CollectorRegistry()
        registry.register(ProgressCollector(self._progress()))
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")


class ProgressCollector(Collector):
    """The progress in Prometheus' terms."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics."""
        if self._progress.extraction is not None:
            yield from _of_extraction(self._progress.extraction)
            return
        if self._progress.training is not None:
            yield from _of_training(self._progress.training)
            return
        rows = GaugeMetricFamily(
            "draftmill_rows", "Rows by what became of them.", labels=["dataset", "state"]
        )
        total = GaugeMetricFamily("draftmill_rows_expected", "Rows to account for.", labels=["dataset"])
        tokens = CounterMetricFamily(
            "draftmill_completion_tokens", "Tokens of all answers.", labels=["dataset"]
        )
        for dataset in self._progress.datasets:
            for state in _ROW_STATES:
                rows.add_metric([dataset.name, state], getattr(dataset, state))
            total.add_metric([dataset.name], dataset.total)
            tokens.add_metric([dataset.name], dataset.completion_tokens)
        failures = CounterMetricFamily(
            "draftmill_failures", "Rows in the dead letter by reason.", labels=["reason"]
        )
        for failure in self._progress.failures:
            failures.add_metric([failure.reason], failure.count)
        requests = CounterMetricFamily(
            "draftmill_request_failures",
            "Requests that brought no answer by reason; most of their rows were asked again.",
            labels=["reason"],
        )
        for reason, count in self._progress.request_failures.items():
            requests.add_metric([reason], count)
        run = self._progress.progress
        yield from (rows, total, tokens, failures, requests)
        yield GaugeMetricFamily("draftmill_requests_in_flight", "Requests in flight.", value=run.in_flight)
        waiting = self._progress.waiting
        yield GaugeMetricFamily("draftmill_rows_waiting", "Rows that wait for a place.", value=waiting)
        yield CounterMetricFamily("draftmill_requests_retried", "Requests sent again.", value=run.retried)
        yield from _of_servers(self._progress.servers)


def _of_servers(servers: Sequence[ServerProgress]) -> Iterable[Metric]:
    is_up = GaugeMetricFamily("draftmill_server_up", "Whether rows may go there.", labels=["server"])
    in_flight = GaugeMetricFamily("draftmill_server_requests", "Requests it has.", labels=["server"])
    limit = GaugeMetricFamily("draftmill_server_limit", "Most requests at once.", labels=["server"])
    refused = CounterMetricFamily("draftmill_server_refused", "Requests it refused.", labels=["server"])
    cuts = CounterMetricFamily("draftmill_server_cuts", "Cuts of its limit.", labels=["server"])
    for server in servers:
        is_up.add_metric([server.name], float(server.state == "up"))
        in_flight.add_metric([server.name], server.in_flight)
        if server.limit is not None:
            limit.add_metric([server.name], server.limit)
        refused.add_metric([server.name], server.refused)
        cuts.add_metric([server.name], server.cuts)
    yield from (is_up, in_flight, limit, refused, cuts)


def _of_extraction(progress: ExtractProgress) -> Iterable[Metric]:
    rows = GaugeMetricFamily("draftmill_extracted_rows", "Rows by what became of them.", labels=["state"])
    rows.add_metric(["stored"], progress.rows)
    rows.add_metric(["quarantined"], progress.quarantined)
    yield rows
    yield GaugeMetricFamily("draftmill_extracted_rows_expected", "Rows to store.", value=progress.total)
    yield GaugeMetricFamily("draftmill_extracted_tokens", "Tokens in the store.", value=progress.tokens)
    yield GaugeMetricFamily("draftmill_extracted_bytes", "Bytes of the store.", value=progress.bytes)
    yield GaugeMetricFamily(
        "draftmill_staged_bytes", "Bytes in the staging folder.", value=progress.staged_bytes
    )
    yield GaugeMetricFamily("draftmill_requests_in_flight", "Requests in flight.", value=progress.in_flight)
    yield CounterMetricFamily("draftmill_requests_retried", "Requests sent again.", value=progress.retried)


def _of_training(progress: TrainProgress) -> Iterable[Metric]:
    yield GaugeMetricFamily("draftmill_training_step", "Optimiser steps done.", value=progress.step)
    yield GaugeMetricFamily("draftmill_training_steps_expected", "Optimiser steps.", value=progress.total)
    yield GaugeMetricFamily("draftmill_training_epoch", "Epoch, from 1.", value=progress.epoch)
    yield CounterMetricFamily("draftmill_training_tokens", "Tokens trained on.", value=progress.tokens)
    yield GaugeMetricFamily(
        "draftmill_training_corrupt_rows", "Rows left out: they are corrupt.", value=progress.corrupt_rows
    )
    for name, words, figure in (
        ("draftmill_training_loss", "Mean loss of the last steps.", progress.loss),
        ("draftmill_acceptance_length", "Simulated, on greedy rows held out.", progress.acceptance_length),
        ("draftmill_teacher_agreement", "On sampled rows held out.", progress.teacher_agreement),
        ("draftmill_training_data_wait_percent", "Time spent waiting for data.", progress.data_wait),
    ):
        if figure:
            yield GaugeMetricFamily(name, words, value=float(figure))
