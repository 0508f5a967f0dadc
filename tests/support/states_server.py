"""A stand-in for a vLLM server with its hidden-state connector, which misbehaves on request.

Its states are random numbers that follow from the tokens, so that a test knows what a store has to hold.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.extract.teacher import load_head
from draftmill_jobs.store.tensors import TensorPlace, render_header
from tests.support.engine_formats import metrics_page
from tests.support.extract_job import ExtractJob

_HEADER = 512
_DTYPES = {np.dtype(np.uint16): "BF16", np.dtype(np.float32): "F32"}


class Trouble(Enum):
    """What is wrong with the answer to one request."""

    TORN = auto()
    MISSING = auto()
    SHORT = auto()
    ZERO = auto()
    ALL_ZERO = auto()
    NOT_A_NUMBER = auto()
    INFINITE = auto()
    OTHER_TOKENS = auto()
    LAYER_DROPPED = auto()
    SLOW_WRITE = auto()
    NO_PATH = auto()
    ELSEWHERE = auto()
    BAD_REQUEST = auto()
    SERVER_ERROR = auto()
    DEATH = auto()
    DEATH_AFTER_WRITING = auto()


def states_of(ids: Sequence[int], layers: int, hidden: int) -> NDArray[np.float32]:
    """The states `[T, layers, hidden]` that the server has for these tokens."""
    seed = int.from_bytes(hashlib.sha256(json.dumps(list(ids)).encode()).digest()[:8])
    return np.random.default_rng(seed).normal(size=(len(ids), layers, hidden)).astype(np.float32)


def on_try(trouble: Trouble, *, first: int = 1) -> Callable[[Sequence[int], int], Trouble | None]:
    """Trouble with the first tries of every row."""
    return lambda _, number: trouble if number < first else None


def with_rows(
    trouble: Trouble, rows: Iterable[Sequence[int]]
) -> Callable[[Sequence[int], int], Trouble | None]:
    """Trouble with some rows whenever they are asked for."""
    wanted = {tuple(row) for row in rows}
    return lambda ids, _: trouble if tuple(ids) in wanted else None


def ids_of(record: dict[str, Any]) -> list[int]:
    """The tokens of a record's row, if it is not cut."""
    ids: list[int] = record["prompt_ids"] + record["output_ids"]
    return ids


class StatesServer:
    """The server. Runs in the test's event loop.

    Attributes:
        trouble: Given a request's tokens and how often they were asked for before; None is a good answer.
            Asked once the preflight is over, or from the start with `from_the_start`.
        asked: The tokens of every request after the preflight, or from the start.
        told: The tokens of every request for the likeliest tokens, too.
        written: The files in which states were put.
        most_staged: Most tokens that were on their way or in the folder at once, after the preflight.
        waiting: Requests that are held.
        metrics_hang: Its metrics are asked for in vain.
        metrics_asked: How often they were asked for.
        in_flight: Requests that are not answered yet.
    """

    def __init__(
        self, model: Path, facts: ModelFacts, staging: Path, *, layers: int = 3, port: int = 0
    ) -> None:
        self.trouble: Callable[[Sequence[int], int], Trouble | None] = lambda _ids, _number: None
        self.from_the_start = False
        self.asked: list[tuple[int, ...]] = []
        self.told: list[tuple[int, ...]] = []
        self.written: list[Path] = []
        self.most_staged = 0
        self.max_model_len = facts.context_length
        self.bfloat16 = False
        self.is_dead = False
        self.holding = asyncio.Event()
        self.holding.set()
        self.waiting = 0
        self.metrics_hang = False
        self.metrics_asked = 0
        self.in_flight = 0
        self.staging = staging
        self.layers = layers
        self._facts = facts
        self._port = port
        self._head = load_head(model, facts)
        self._counts: dict[tuple[int, ...], int] = {}
        self._tokens: dict[Path, int] = {}
        self._tokens_in_flight = 0
        self._mass_begun = False
        self._writes: set[asyncio.Task[None]] = set()
        self.url = ""

    def teach(self, model: Path) -> None:
        """From now on it tells the likeliest tokens of another model."""
        self._head = load_head(model, self._facts)

    async def __aenter__(self) -> Self:
        self.staging.mkdir(parents=True, exist_ok=True)
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.holding.set()
        await self._runner.cleanup()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Answers nothing while the block runs."""
        self.holding.clear()
        try:
            yield
        finally:
            self.holding.set()

    def let_through(self) -> None:
        """Answers the requests that are held, and holds those that come."""
        self.holding.set()
        self.holding.clear()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_dead else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        self.metrics_asked += 1
        if self.metrics_hang:
            await asyncio.Event().wait()
        return web.Response(body=metrics_page(sum(self._counts.values()), self.in_flight))

    async def _models(self, _: web.Request) -> web.Response:
        self._mass_begun = False  # a preflight begins with this question
        return web.json_response({"data": [{"id": "tiny", "max_model_len": self.max_model_len}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.is_dead:
            self._cut_connections()
            return web.Response()
        ids = tuple(body["prompt"])
        assert body["max_tokens"] == 1
        self.in_flight += 1
        self._tokens_in_flight += len(ids)
        try:
            return await self._answer(body, ids)
        finally:
            self.in_flight -= 1
            self._tokens_in_flight -= len(ids)

    async def _answer(self, body: dict[str, Any], ids: tuple[int, ...]) -> web.StreamResponse:
        is_preflight = "prompt_logprobs" in body or not self._mass_begun
        if "prompt_logprobs" in body:
            self._mass_begun = True
            self.told.append(ids)
        is_told = not is_preflight or self.from_the_start
        number = self._counts.get(ids, 0)
        if is_told:
            self._counts[ids] = number + 1
            self.asked.append(ids)
        self.waiting += 1
        await self.holding.wait()
        self.waiting -= 1
        trouble = self.trouble(ids, number) if is_told else None
        if self.is_dead or trouble is Trouble.DEATH:
            self.is_dead = True
            self._cut_connections()
            return web.Response()
        if trouble in (Trouble.BAD_REQUEST, Trouble.SERVER_ERROR):
            status = 400 if trouble is Trouble.BAD_REQUEST else 500
            return web.json_response({"error": {"message": "no", "code": status}}, status=status)
        path = self.staging / f"cmpl-{body['request_id']}-0-{uuid.uuid4().hex[:8]}.safetensors"
        if not is_preflight:
            self._note_staged(path, len(ids))
        self.written.append(path)
        await self._stage(path, ids, trouble)
        if trouble is Trouble.DEATH_AFTER_WRITING:
            self.is_dead = True
            self._cut_connections()
            return web.Response()
        said = Path("/elsewhere") / path.name if trouble is Trouble.ELSEWHERE else path
        choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": "length"}
        if "prompt_logprobs" in body:
            choice["prompt_logprobs"] = self._logprobs(ids)
        answer: dict[str, Any] = {"choices": [choice]}
        if trouble is not Trouble.NO_PATH:
            answer["kv_transfer_params"] = {"hidden_states_path": str(said)}
        return web.json_response(answer)

    def _cut_connections(self) -> None:
        """As the end of a process does."""
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def _note_staged(self, path: Path, tokens: int) -> None:
        self._tokens = {each: count for each, count in self._tokens.items() if each.exists()}
        self._tokens[path] = tokens
        others = sum(count for each, count in self._tokens.items() if each != path)
        self.most_staged = max(self.most_staged, others + self._tokens_in_flight)

    def _logprobs(self, ids: tuple[int, ...]) -> list[dict[str, Any] | None]:
        last = states_of(ids, self.layers, self._facts.hidden_size)[:, -1]
        logits = self._head.normalise(last) @ self._head.weight.T
        return [None, *({str(int(each)): {"rank": 1, "logprob": -1.0}} for each in logits.argmax(1)[:-1])]

    async def _stage(self, path: Path, ids: tuple[int, ...], trouble: Trouble | None) -> None:
        lock = path.with_name(path.name + ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = self._content(ids, trouble)

        def write() -> None:
            if trouble is not Trouble.MISSING:
                path.write_bytes(content[: len(content) // 2] if trouble is Trouble.TORN else content)
            lock.close()

        if trouble is not Trouble.SLOW_WRITE:
            write()
            return

        async def later() -> None:
            await asyncio.to_thread(path.write_bytes, content[:100])
            await asyncio.sleep(0.2)
            write()

        task = asyncio.create_task(later())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    def _content(self, ids: tuple[int, ...], trouble: Trouble | None) -> bytes:
        states = states_of(ids, self.layers, self._facts.hidden_size)
        returned = np.array(ids, np.int64)
        match trouble:
            case Trouble.SHORT:
                states, returned = states[:-1], returned[:-1]
            case Trouble.ZERO:
                states[-1] = 0
            case Trouble.ALL_ZERO:
                states[:] = 0
            case Trouble.NOT_A_NUMBER:
                states[len(states) // 2, 1, 3] = np.nan
            case Trouble.INFINITE:
                states[0, 0, 0] = np.inf
            case Trouble.OTHER_TOKENS:
                returned[-1] += 1
            case Trouble.LAYER_DROPPED:
                states = states[:, :-1]
            case _:
                pass
        bits = (states.view(np.uint32) >> 16).astype(np.uint16) if self.bfloat16 else states
        end = _HEADER + bits.nbytes
        places = {
            "hidden_states": TensorPlace(_DTYPES[bits.dtype], bits.shape, _HEADER, end),
            "token_ids": TensorPlace("I64", returned.shape, end, end + returned.nbytes),
        }
        return render_header(places, {}, _HEADER) + bits.tobytes() + returned.tobytes()


def use(job: ExtractJob, *servers: StatesServer) -> ExtractJob:
    """The job asks these servers, which share a folder."""
    endpoints = [
        {"name": f"s{index}", "url": server.url, "engine": "VLLM"} for index, server in enumerate(servers)
    ]
    job.fields |= {
        "backend": "VLLM",
        "staging": str(servers[0].staging),
        "inFlightTokens": 400,
        "verify": {"teacherArgmaxSample": 3},
        "endpoints": endpoints,
    }
    return job


def assert_stored(job: ExtractJob, server: StatesServer, *, without: int = 0) -> None:
    """Every record's states are in the store, once and as the server made them, and nothing is staged."""
    assert_states(job, states=server.layers, without=without)
    assert list(server.staging.iterdir()) == []


def assert_states(job: ExtractJob, *, states: int, without: int = 0) -> None:
    """The job finishes well, and the store has every record but some, once, with so many states a token."""
    result = job.finish()
    assert (result.rows, result.quarantined) == (len(job.records) - without, without)
    records = {record["id"]: record for record in job.records}
    with job.store() as store:
        for row in store:
            ids = ids_of(records.pop(row.line.id))
            assert row.token_ids.tolist() == ids
            assert np.array_equal(row.values(), states_of(ids, states, store.binding.hidden_size))
    assert len(records) == without
