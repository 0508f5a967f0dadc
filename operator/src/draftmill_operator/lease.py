"""Exactly one active operator: a Lease that is taken, renewed, and given back.

The times are those of client-go: a lease counts for 15 s, its holder gives up after 10 s without a
successful renewal, and tries every 2 s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from draftmill_operator.kube.client import MERGE_PATCH, Json, KubeClient
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import LEASES
from draftmill_operator.metrics import LEADER

log = logging.getLogger(__name__)

LEASE_SECONDS: Final = 15
RENEW_DEADLINE: Final = 10.0
RETRY_PERIOD: Final = 2.0


class LeaseLostError(Exception):
    """Someone else may be active by now: the process has to end."""


class Lease:
    """One contender for a Lease object."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._version = ""
        self.renewed_at: float | None = None
        """When the lease was last taken or renewed, by the clock; None while it is not held."""

    async def acquire(self) -> None:
        """Return when the lease is held."""
        while True:
            if await self._try():
                LEADER.set(1)
                log.info("lease %s/%s is held by %s", self._namespace, self._name, self._identity)
                return
            await asyncio.sleep(RETRY_PERIOD)

    async def keep(self) -> None:
        """Renew the lease for ever.

        Raises:
            LeaseLostError: it could not be renewed in time, or someone else took it.
        """
        while True:
            await asyncio.sleep(RETRY_PERIOD)
            if await self._try():
                continue
            if self.renewed_at is None or self._clock() - self.renewed_at > RENEW_DEADLINE:
                LEADER.set(0)
                raise LeaseLostError(f"lease {self._namespace}/{self._name} could not be renewed")

    async def release(self) -> None:
        """Give the lease back, so that the next operator need not wait for its end."""
        if self.renewed_at is None:
            return
        self.renewed_at = None
        LEADER.set(0)
        try:
            await self._write({"holderIdentity": "", "leaseDurationSeconds": 1})
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("lease could not be given back: %s", error)

    async def _try(self) -> bool:
        try:
            async with asyncio.timeout(RENEW_DEADLINE / 2):
                return await self._take_or_renew()
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, str(error) or type(error).__name__)
            return False

    async def _take_or_renew(self) -> bool:
        lease = await self._client.get(LEASES, self._namespace, self._name)
        if lease is None:
            return await self._create()
        spec: dict[str, Any] = lease.get("spec") or {}
        holder = spec.get("holderIdentity", "")
        if holder not in {"", self._identity} and not self._has_run_out(spec):
            self.renewed_at = None
            return False
        now = _micro_time()
        fields = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        }
        if holder != self._identity:
            fields |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        self._version = lease["metadata"]["resourceVersion"]
        await self._write(fields)
        self.renewed_at = self._clock()
        return True

    def _has_run_out(self, spec: dict[str, Any]) -> bool:
        """Whether the holder has not renewed for the lease's length, by this process's own clock."""
        state = spec.get("holderIdentity", ""), spec.get("renewTime", "")
        if state != self._seen:
            self._seen, self._seen_at = state, self._clock()
        length: int = spec.get("leaseDurationSeconds", LEASE_SECONDS)
        return self._clock() - self._seen_at > length

    async def _create(self) -> bool:
        now = _micro_time()
        await self._client.request(
            "POST",
            LEASES,
            LEASES.path(self._namespace),
            body={
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": {
                    "holderIdentity": self._identity,
                    "leaseDurationSeconds": LEASE_SECONDS,
                    "acquireTime": now,
                    "renewTime": now,
                    "leaseTransitions": 0,
                },
            },
        )
        self.renewed_at = self._clock()
        return True

    async def _write(self, fields: Json) -> None:
        """Change the lease if nobody else has since it was read."""
        body: Json = {"spec": fields}
        if self._version:
            body["metadata"] = {"resourceVersion": self._version}
        answer = await self._client.request(
            "PATCH",
            LEASES,
            LEASES.path(self._namespace, self._name),
            body=body,
            content_type=MERGE_PATCH,
        )
        self._version = answer["metadata"]["resourceVersion"]


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
