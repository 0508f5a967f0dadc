"""kopf as watcher: every event of runs and their children goes to the cache, and its run to the queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import kopf

from draftmill_api import names as api_names
from draftmill_operator.kube.client import KubeClient
from draftmill_operator.kube.connection import Connection
from draftmill_operator.kube.resources import RESOURCES, selector_of
from draftmill_operator.metrics import WATCH_EVENTS
from draftmill_operator.observe.store import CHILD_KINDS, RUN_KINDS, Kind, Object, Store
from draftmill_operator.run import RunKey

# kopf would look up the user's name, which an image's numeric user has not.
_IDENTITY: Final[Any] = "draftmill-operator"


class WatchEndedError(Exception):
    """The watches have ended although nobody asked for it: the process is blind and has to end."""


class Intake:
    """Takes objects into the cache and calls for passes."""

    def __init__(self, store: Store, changed: Callable[[RunKey], None]) -> None:
        self._store = store
        self._changed = changed
        self.listed = asyncio.Event()
        """Set when a watch has begun with a list, which says nothing of what is gone."""

    def take(self, kind: Kind, event_type: str | None, raw: Object) -> None:
        """One object as a watch delivers it; None is kopf's word for a listed one."""
        WATCH_EVENTS.labels(kind=kind.value).inc()
        if event_type is None:
            self.listed.set()
        take = self._store.remove if event_type == "DELETED" else self._store.put
        is_news = take(kind, raw)
        key, waiting = self._store.concerned(kind, raw)
        if is_news and key is not None:
            self._changed(key)
        for other in waiting:
            # Also where it is no news: the operator's own write, whose answer it has taken itself.
            self._changed(other)


async def seed(client: KubeClient, intake: Intake, namespaces: tuple[str | None, ...]) -> None:
    """Fill the cache before the first pass: a pass on half a cache would start things twice.

    Raises:
        ApiError: a kind cannot be listed: the CRD is missing, or a permission.
    """
    for kind in (*CHILD_KINDS, *RUN_KINDS):
        resource = RESOURCES[kind]
        for namespace in namespaces:
            async for item in client.list(resource, namespace, selector_of(kind)):
                intake.take(kind, None, {"apiVersion": resource.group_version, "kind": kind.value, **item})


async def watch(
    connection: Connection, intake: Intake, namespaces: tuple[str | None, ...], ready: asyncio.Event
) -> None:
    """Watch until cancelled.

    Raises:
        WatchEndedError: kopf has stopped.
    """
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    registry = kopf.OperatorRegistry()
    _register_login(registry, connection)
    for kind in Kind:
        _register(registry, kind, intake)
    only = [namespace for namespace in namespaces if namespace is not None]
    await kopf.operator(
        registry=registry,
        settings=_settings(),
        identity=_IDENTITY,
        standalone=True,
        clusterwide=not only,
        namespaces=only,
        ready_flag=ready,
    )
    raise WatchEndedError("the watches have ended")


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = 20
    for kind in CHILD_KINDS:
        # Replacing the whole mapping would end the watches: items only.
        settings.watching.label_selectors[RESOURCES[kind].plural] = api_names.LABEL_RUN
    return settings


def _register_login(registry: kopf.OperatorRegistry, connection: Connection) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_data=connection.ca_data,
            certificate_data=connection.certificate_data,
            private_key_data=connection.key_data,
            scheme="Bearer" if connection.bearer_token() else None,
            token=connection.bearer_token(),
        )


def _register(registry: kopf.OperatorRegistry, kind: Kind, intake: Intake) -> None:
    resource = RESOURCES[kind]
    group, _, version = resource.group_version.rpartition("/")

    @kopf.on.event(group, version, resource.plural, registry=registry, id=f"watch-{resource.plural}")
    async def take(event: kopf.RawEvent, **_: Any) -> None:
        intake.take(kind, event["type"], dict(event["object"]))
