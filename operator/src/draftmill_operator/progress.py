"""Asks pods of workers and of evaluations how far they are; of pods that work as one, the first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from pydantic import ValidationError

from draftmill_api import names as api_names
from draftmill_api.progress import Progress
from draftmill_operator.observe.answers import Answers
from draftmill_operator.observe.ownership import run_of_worker
from draftmill_operator.observe.pods import rank_of
from draftmill_operator.observe.store import Kind, Object, Store, run_uid
from draftmill_operator.run import EVALUATIONS, Role, RunKey

log = logging.getLogger(__name__)

PERIOD: Final = 2.0
LARGEST_ANSWER: Final = 256 * 1024
"""Bytes; a pod's answer is not trusted."""
_AT_ONCE: Final = 32
_TIMEOUT: Final = aiohttp.ClientTimeout(total=5, sock_connect=2)


class ProgressPoller:
    """Asks them, and keeps what they say."""

    def __init__(self, store: Store, changed: Callable[[RunKey], None]) -> None:
        self._store = store
        self._changed = changed
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.answers = Answers()

    async def poll(self) -> None:
        """Ask for ever."""
        while True:
            await self.ask_all()
            await asyncio.sleep(PERIOD)

    async def ask_all(self) -> None:
        """Ask each of these pods that runs and that a Job of a known run owns, once."""
        pods = [
            (key, raw)
            for raw in self._store.all(Kind.POD)
            if _is_asked(raw) and (key := run_of_worker(self._store, raw)) is not None
        ]
        self.answers.keep_only(
            {raw["metadata"]["uid"] for _, raw in pods},
            {raw["metadata"]["uid"] for _, raw in self._store.runs()},
        )
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            await asyncio.gather(*(self._ask(session, key, raw) for key, raw in pods if _is_running(raw)))

    async def _ask(self, session: aiohttp.ClientSession, key: RunKey, pod: Object) -> None:
        ip = pod["status"]["podIP"]
        host = f"[{ip}]" if ":" in ip else ip
        try:
            async with (
                self._slots,
                session.get(
                    f"http://{host}:{api_names.JOB_HTTP_PORT}/progress", allow_redirects=False
                ) as answer,
            ):
                if answer.status != HTTPStatus.OK:
                    log.warning("pod %s answers %d, not its progress", pod["metadata"]["name"], answer.status)
                    return
                text = await answer.content.read(LARGEST_ANSWER)
            progress = Progress.model_validate_json(text)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("pod %s does not answer: %s", pod["metadata"]["name"], error)
            return
        except ValidationError as error:
            log.warning("pod %s answers what is no progress: %s", pod["metadata"]["name"], error)
            return
        is_worker = _role(pod) == Role.WORKER
        if self.answers.take(run_uid(pod), pod["metadata"]["uid"], progress, of_worker=is_worker):
            self._changed(key)


def _is_asked(pod: dict[str, Any]) -> bool:
    return _role(pod) in {Role.WORKER, *EVALUATIONS} and rank_of(pod) == 0


def _role(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(api_names.LABEL_ROLE, ""))


def _is_running(pod: dict[str, Any]) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and bool(status.get("podIP"))
