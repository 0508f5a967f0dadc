"""The operator's own metrics; what it knows of runs is collected from its cache when it is asked."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX: Final = "draftmill_operator"
REGISTRY: Final = CollectorRegistry()

RECONCILE_SECONDS: Final = Histogram(
    f"{PREFIX}_reconcile_seconds", "Length of a pass over one run.", ["kind", "result"], registry=REGISTRY
)
QUEUE_DEPTH: Final = Gauge(f"{PREFIX}_workqueue_depth", "Runs that wait for a pass.", registry=REGISTRY)
QUEUE_ADDS: Final = Counter(f"{PREFIX}_workqueue_adds", "Calls for a pass.", registry=REGISTRY)
QUEUE_RETRIES: Final = Counter(
    f"{PREFIX}_workqueue_retries", "Passes repeated after an error.", registry=REGISTRY
)
QUEUE_LONGEST: Final = Gauge(
    f"{PREFIX}_workqueue_longest_running_seconds", "Age of the oldest pass at work.", registry=REGISTRY
)
API_REQUESTS: Final = Counter(
    f"{PREFIX}_api_requests", "Requests to the API server.", ["verb", "resource", "code"], registry=REGISTRY
)
API_REQUEST_SECONDS: Final = Histogram(
    f"{PREFIX}_api_request_seconds", "Length of a request.", ["verb", "resource"], registry=REGISTRY
)
STATUS_WRITES: Final = Counter(
    f"{PREFIX}_status_writes", "Statuses written, and skipped as equal.", ["result"], registry=REGISTRY
)
CHILD_ERRORS: Final = Counter(
    f"{PREFIX}_child_create_errors", "Children that the API server refused.", ["reason"], registry=REGISTRY
)
WATCH_EVENTS: Final = Counter(
    f"{PREFIX}_watch_events", "Objects delivered by watches.", ["kind"], registry=REGISTRY
)
WATCH_LAG: Final = Gauge(
    f"{PREFIX}_watch_stale_seconds",
    "For how long the cache has lacked a change that the API server has.",
    ["kind"],
    registry=REGISTRY,
)
LEADER: Final = Gauge(f"{PREFIX}_leader", "1 while the lease is held.", registry=REGISTRY)
