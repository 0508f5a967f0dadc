"""One pass over one run: observe, decide, render, apply, status."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import aiohttp

from draftmill_api.jobconfig import config_hash
from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.apply import Applier, ChildError
from draftmill_operator.decide.facts import Facts
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Decision, Situation
from draftmill_operator.diagnose import Detective
from draftmill_operator.kinds.base import BESIDE, AnyKind, AnyRun
from draftmill_operator.kinds.registry import KINDS
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.kube.resources import RESOURCES
from draftmill_operator.kube.writes import Kube, Propagation
from draftmill_operator.metrics import RECONCILE_SECONDS, STATUS_WRITES
from draftmill_operator.observe.latecomers import Latecomers
from draftmill_operator.observe.observe import observe
from draftmill_operator.observe.store import Kind, Object, Store
from draftmill_operator.observe.types import Observed, Problem
from draftmill_operator.observe.upstream import observe_upstream
from draftmill_operator.progress import ProgressPoller
from draftmill_operator.queue import RetryLater
from draftmill_operator.render.children import Surroundings, render_children
from draftmill_operator.render.config import config_text
from draftmill_operator.render.defaults import FrozenDefaults
from draftmill_operator.render.server import run_template, template_hash
from draftmill_operator.run import NotUnderstoodError, Role, RunIdentity, RunKey
from draftmill_operator.settings import OperatorSettings
from draftmill_operator.status.cadence import only_progress_differs, progress_interval, worth_writing
from draftmill_operator.status.events import Event, EventType, events_between
from draftmill_operator.status.not_understood import not_understood
from draftmill_operator.status.summarise import summarise

log = logging.getLogger(__name__)

LOOK_AGAIN_AT_NOT_UNDERSTOOD: Final = 300.0
"""Seconds; whoever sets it right calls for a pass by that."""


@dataclass(frozen=True)
class Clock:
    """The time of day for what is recorded, and a time that never jumps for what is measured."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic


class Reconciler:
    """Makes passes over runs."""

    def __init__(
        self, settings: OperatorSettings, store: Store, kube: Kube, poller: ProgressPoller, clock: Clock
    ) -> None:
        self._settings = settings
        self._store = store
        self._kube = kube
        self._poller = poller
        self._clock = clock
        self._applier = Applier(kube, store)
        self._detective = Detective(kube)
        self._latecomers = Latecomers(kube, store)
        self._progress_written: dict[str, float] = {}
        self._doubtful: set[RunKey] = set()
        """Runs whose last pass failed: a write of it may have been carried out though nobody heard of it."""
        self._access_modes: dict[tuple[str, str], list[str]] = {}
        """Of data claims; a claim cannot change them."""

    async def reconcile(self, key: RunKey) -> float | None:
        """One pass; the answer is the number of seconds until the next look.

        Raises:
            RetryLater: a child could not be made, and the status says so; or the run is not there any more,
                which the cache will know in a moment; or the API server refused something else, or could
                not be reached.
        """
        started, result = self._clock.monotonic(), "error"
        try:
            raw = await self._newest(key)
            try:
                requeue = await self._pass_over(KINDS[key.kind], raw) if raw is not None else None
            except NotUnderstoodError as error:
                return await self._report(key, raw or {}, error)
            result = "success"
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            self._doubtful.add(key)
            raise RetryLater(str(error) or type(error).__name__) from error
        finally:
            elapsed = self._clock.monotonic() - started
            RECONCILE_SECONDS.labels(kind=key.kind, result=result).observe(elapsed)
        return requeue

    async def _newest(self, key: RunKey) -> Object | None:
        """The run as the cache has it, which is brought up to date first where it may lack an own write.

        A run that has ended unheard would else go on for a pass, and end a second time.
        """
        if key in self._doubtful:
            raw = await self._kube.client.get(RESOURCES[Kind(key.kind)], key.namespace, key.name)
            if raw is not None:
                self._store.put(Kind(key.kind), raw)
            self._doubtful.discard(key)
        return self._store.run(key)

    async def _pass_over(self, kind: AnyKind, raw: Object) -> float | None:
        run = kind.parse(raw)
        if run.being_deleted:
            self._progress_written.pop(run.identity.uid, None)
            self._latecomers.forget(run.identity.uid)
            return None
        return await self._pass(kind, run)

    async def _report(self, key: RunKey, raw: Object, error: NotUnderstoodError) -> float:
        """Say in the run's status that this operator cannot act on it; seconds to the next look."""
        log.error("%s: %s: %s", key, error.reason, error)
        metadata, status = raw["metadata"], raw.get("status") or {}
        if "deletionTimestamp" in metadata:
            return LOOK_AGAIN_AT_NOT_UNDERSTOOD
        problem = Problem(error.reason, str(error))
        told = not_understood(
            status, problem, metadata.get("generation", 0), f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        )
        if told == status:
            return LOOK_AGAIN_AT_NOT_UNDERSTOOD
        run = RunIdentity(key, metadata["uid"])
        written = await self._kube.write_status(run, told)
        if written is None:
            return LOOK_AGAIN_AT_NOT_UNDERSTOOD
        self._store.put(Kind(key.kind), written)
        if status.get("reason") != problem.reason:
            event = Event(EventType.WARNING, problem.reason, problem.message)
            await self._kube.record(run, (event,), self._clock.now())
        return 0.0 if _was_edited(written, metadata.get("generation", 0)) else LOOK_AGAIN_AT_NOT_UNDERSTOOD

    async def _pass(self, kind: AnyKind, run: AnyRun) -> float | None:
        now = self._clock.now()
        seen, look_again = await self._observe(kind, run, now)
        defaults = seen.defaults or FrozenDefaults.from_settings(self._settings)
        endpoints = _endpoints(kind, run, seen, defaults)
        situation = Situation(kind, run, seen, endpoints, tuple(self._settings.host_path_prefixes), now)
        decision = decide(situation)
        if decision.remove_run:
            await self._kube.delete(
                Kind(run.key.kind), run.key.namespace, run.key.name, run.identity.uid, Propagation.BACKGROUND
            )
            return None
        refused = await self._apply(situation, decision, defaults)
        if refused is not None:
            facts = (decision.facts or situation.facts).with_none_started(situation.facts)
            decision = replace(decision, problem=refused.problem, facts=facts)
        status = summarise(situation, decision)
        if refused is not None:
            status = status.model_copy(update={"observed_generation": run.status.observed_generation})
        wait = await self._write(run, status, now)
        if refused is not None:
            raise RetryLater(str(refused)) from refused
        return _earliest(decision.requeue_after, look_again, wait)

    async def _observe(self, kind: AnyKind, run: AnyRun, now: datetime) -> tuple[Observed, float | None]:
        """What is seen, with events about what does not explain itself, and when to look at those again."""
        seen = observe(run.identity, self._store, self._poller.answers, {})
        if run.status.completion_time is None and await self._latecomers.fetch(run.identity, seen):
            seen = observe(run.identity, self._store, self._poller.answers, {})
        serving = kind.serving(run.spec)
        hardware = kind.hardware(run.spec)
        findings, look_again = await self._detective.explain(run.key.namespace, seen, serving, hardware, now)
        if findings:
            seen = observe(run.identity, self._store, self._poller.answers, findings)
        upstream = kind.upstream(run)
        if upstream is not None:
            seen = replace(seen, upstream=observe_upstream(upstream, self._store))
        if run.status.plan is None and seen.plan is not None and seen.plan.message is not None:
            seen = replace(seen, data_capacity=await self._data_capacity(kind, run))
        return seen, look_again

    async def _data_capacity(self, kind: AnyKind, run: AnyRun) -> int | None:
        claim = kind.storage(run).data.persistent_volume_claim
        return await self._kube.capacity(run.key.namespace, claim.claim_name) if claim is not None else None

    async def _apply(
        self, situation: Situation, decision: Decision, defaults: FrozenDefaults
    ) -> ChildError | None:
        run, kind = situation.run, situation.kind
        text, children = "", []
        if decision.wanted.config:
            text = config_text(kind.config(run, situation.endpoints))
            around = Surroundings(defaults, text, await self._one_node_only(situation, decision))
            children = render_children(kind, run, decision, around)
        try:
            await self._applier.apply(situation, decision, children)
        except ChildError as error:
            return error
        if decision.wanted.config:
            await self._applier.announce_config(run, situation.seen, config_hash(text))
        return None

    async def _one_node_only(self, situation: Situation, decision: Decision) -> bool:
        """Whether several worker pods share a data volume that only one node can mount at a time."""
        run = situation.run
        claim = situation.kind.storage(run).data.persistent_volume_claim
        workers = len(decision.wanted.workers)
        if claim is None or not workers or workers * situation.kind.workload(run).pods_of_a_worker < 2:
            return False
        place = run.key.namespace, claim.claim_name
        modes = self._access_modes.get(place) or await self._kube.access_modes(*place)
        self._access_modes[place] = modes
        return bool(modes) and "ReadWriteMany" not in modes

    async def _write(self, run: AnyRun, status: AnyStatus, now: datetime) -> float | None:
        """Write the status if it differs in meaning; seconds to the next look, if one is needed for that."""
        if not worth_writing(run.status, status):
            STATUS_WRITES.labels(result="skipped").inc()
            return None
        if only_progress_differs(run.status, status):
            wait = self._wait_for_progress(run)
            if wait > 0:
                return wait
        written = await self._kube.write_status(run.identity, status.to_json())
        if written is None:
            raise RetryLater("the run is gone, or another one has its name, and the cache lags behind")
        STATUS_WRITES.labels(result="written").inc()
        self._progress_written[run.identity.uid] = self._clock.monotonic()
        self._store.put(Kind(run.key.kind), written)
        await self._kube.record(run.identity, events_between(run.status, status), now)
        return 0.0 if _was_edited(written, run.generation) else None

    def _wait_for_progress(self, run: AnyRun) -> float:
        last = self._progress_written.get(run.identity.uid)
        if last is None:
            return 0.0
        running = sum(
            (raw.get("status") or {}).get("phase") == Phase.RUNNING for _, raw in self._store.runs()
        )
        return last + progress_interval(running) - self._clock.monotonic()


def _was_edited(written: Object, generation: int) -> bool:
    """Whether another spec came with the answer to a write: its watch event will bring no news any more."""
    return bool(written["metadata"]["generation"] != generation)


def _endpoints(kind: AnyKind, run: AnyRun, seen: Observed, defaults: FrozenDefaults) -> tuple[Endpoint, ...]:
    """Where workers find servers now: Ready pods of the current template, one beside them, or given ones."""
    serving = kind.serving(run.spec)
    if serving.beside is not None:
        return (BESIDE,)
    if serving.apart is None:
        return serving.given
    excluded = Facts.of(run.status).kept_from(Role.SERVER)
    template = run_template(run.identity, kind.workload(run), serving.apart, defaults, excluded)
    return seen.servers.endpoints(template_hash(template), serving.apart.engine)


def _earliest(*delays: float | None) -> float | None:
    return min((delay for delay in delays if delay is not None), default=None)
