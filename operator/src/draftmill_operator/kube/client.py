"""Requests to the API server: rate-limited, repeated where that is safe, errors as `ApiError`."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from draftmill_operator.kube.connection import Connection
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.limiter import TokenBucket
from draftmill_operator.metrics import API_REQUEST_SECONDS, API_REQUESTS

log = logging.getLogger(__name__)

Json = dict[str, Any]
TRIES: Final = 5
PAGE: Final = 500
APPLY_PATCH: Final = "application/apply-patch+yaml"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
JSON: Final = "application/json"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PASSING_CODES: Final = {429, 500, 502, 503, 504}
_TIMEOUT: Final = aiohttp.ClientTimeout(total=60, sock_connect=10)


@dataclass(frozen=True)
class Resource:
    """A kind of object as a part of URLs."""

    group_version: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL's path; without a namespace that of all namespaces."""
        root = "/api" if "/" not in self.group_version else "/apis"
        parts = [root, self.group_version]
        parts += ["namespaces", namespace] if namespace else []
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class KubeClient:
    """Verbs of the Kubernetes API on JSON."""

    def __init__(self, connection: Connection, limiter: TokenBucket) -> None:
        self._connection = connection
        self._limiter = limiter
        self._ssl = connection.ssl_context() if connection.server.startswith("https") else False
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json | None:
        """An object, or None if there is none."""
        try:
            return await self.request("GET", resource, resource.path(namespace, name))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        selector: str = "",
        *,
        fields: str = "",
        metadata_only: bool = False,
    ) -> AsyncIterator[Json]:
        """Objects page by page; each without apiVersion and kind, as lists have them."""
        params = {"limit": str(PAGE)} | ({"fieldSelector": fields} if fields else {})
        if selector:
            params["labelSelector"] = selector
        while True:
            page = await self.request(
                "GET",
                resource,
                resource.path(namespace),
                params=params,
                accept=_METADATA_LIST if metadata_only else JSON,
            )
            for item in page.get("items") or []:
                yield item
            following = page["metadata"].get("continue")
            if not following:
                return
            params["continue"] = following

    async def request(
        self,
        verb: str,
        resource: Resource,
        path: str,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Json:
        """One request, repeated when the server is busy, or when the connection fails and repeating is safe.

        Raises:
            ApiError: the server refuses.
            aiohttp.ClientError: the server cannot be reached.
            TimeoutError: the server does not answer.
        """
        data = orjson.dumps(body) if body is not None else None
        headers = {"Accept": accept, "User-Agent": "draftmill-operator"}
        if data is not None:
            headers["Content-Type"] = content_type
        for attempt in range(1, TRIES + 1):
            await self._limiter.take()
            try:
                return await self._once(verb, resource, path, params=params, data=data, headers=headers)
            except ApiError as error:
                if attempt == TRIES or error.code not in _PASSING_CODES or verb == "POST":
                    raise
                log.debug("%s %s: %s; trying again", verb, path, error)
                await asyncio.sleep(_pause(attempt, error.retry_after))
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                if attempt == TRIES or verb == "POST":
                    raise
                await asyncio.sleep(_pause(attempt, None))
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        verb: str,
        resource: Resource,
        path: str,
        *,
        params: dict[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
    ) -> Json:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        token = self._connection.bearer_token()
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        started = time.monotonic()
        code = "error"
        try:
            async with self._session.request(
                verb,
                self._connection.server + path,
                params=params,
                data=data,
                headers=headers | bearer,
                ssl=self._ssl,
            ) as response:
                code = str(response.status)
                text = await response.read()
                if response.ok:
                    parsed: Json = orjson.loads(text)
                    return parsed
                seconds = response.headers.get("Retry-After", "")
                retry_after = float(seconds) if seconds.isdigit() else None
                raise ApiError.from_answer(response.status, text, retry_after)
        finally:
            API_REQUESTS.labels(verb=verb, resource=resource.plural, code=code).inc()
            API_REQUEST_SECONDS.labels(verb=verb, resource=resource.plural).observe(
                time.monotonic() - started
            )


def _pause(attempt: int, retry_after: float | None) -> float:
    """What the server asked for, else 0.2 s doubling, with full jitter."""
    if retry_after is not None:
        return min(retry_after, 30.0) + random.uniform(0, 0.2)  # noqa: S311  spreads load
    return random.uniform(0, 0.2 * 2.0**attempt)  # noqa: S311  spreads load
