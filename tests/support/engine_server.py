"""An inference server that speaks the wire formats of vLLM and SGLang and misbehaves on request.

The answers are a function of the prompt, so a test knows what a record must hold. What is done with a request
is decided by a script: a function from `Request` to a reaction. Runs in a test's event loop, or as a program
of its own: `python -m tests.support.engine_server --model FOLDER`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from tests.support.engine_formats import (
    Answered,
    metrics_page,
    openai_body,
    openai_events,
    response_head,
    sglang_body,
    sglang_chat_body,
    sglang_events,
)
from tests.support.tiny_model import CLOSE, END, FIRST_NUMBER, NUMBERS, THINK, Thinking, TinyModel

LENGTH = 16  # tokens of an answer, the stop token included


@dataclass(frozen=True)
class Request:
    """A request for an answer.

    Attributes:
        number: Counts from 0 over all requests for answers, the preflight's not included.
        tries: How often the same prompt came before.
    """

    path: str
    payload: dict[str, Any]
    prompt_ids: list[int]
    number: int
    tries: int

    @property
    def is_preflight(self) -> bool:
        return str(self.payload.get("request_id", self.payload.get("rid", ""))).startswith("preflight-")


@dataclass(frozen=True)
class Reply:
    """Answer after `delay` seconds.

    Attributes:
        ids: Instead of the ids that follow from the prompt.
        finish: stop, length, abort, ...; None lets it follow from the ids.
        edit: Changes the JSON before it is sent.
        padding: Further bytes in the body.
    """

    delay: float = 0.0
    ids: list[int] | None = None
    finish: str | None = None
    edit: Callable[[dict[str, Any]], None] | None = None
    padding: int = 0


@dataclass(frozen=True)
class Fail:
    """Answer with an HTTP error."""

    status: int
    body: bytes = b'{"error":{"message":"made to fail","type":"test","param":null,"code":500}}'
    headers: tuple[str, ...] = ()
    delay: float = 0.0


@dataclass(frozen=True)
class Cut:
    """Send half of the answer and close the connection."""

    delay: float = 0.0


@dataclass(frozen=True)
class Stall:
    """Take the request and never answer."""


@dataclass(frozen=True)
class Hold:
    """Answer when so many requests are held, or when the test lets them go."""

    until: int = 1 << 30


Reaction = Reply | Fail | Cut | Stall | Hold
Script = Callable[[Request], Reaction]


def answer_ids(model: TinyModel, prompt_ids: list[int], length: int = LENGTH) -> list[int]:
    """The answer to a prompt: numbers that follow from it, then the stop token."""
    seed = hashlib.sha256(orjson.dumps(prompt_ids)).digest()
    words = [FIRST_NUMBER + (seed[i % 32] * 31 + i) % NUMBERS for i in range(length - 1)]
    match model.thinking:
        case Thinking.NONE:
            return [*words, END]
        case Thinking.OPEN_IN_PROMPT:
            return [*words[:4], CLOSE, *words[5:], END]
        case Thinking.IN_OUTPUT:
            return [THINK, *words[1:4], CLOSE, *words[5:], END]


@dataclass
class EngineServer:
    """The server and what it has seen.

    Attributes:
        preflight: The script of the preflight's requests.
        requests: Those for answers, the preflight's not included.
        heads: Request lines and headers of all requests.
        unanswered: Pages that are asked for in vain.
    """

    model: TinyModel
    script: Script = field(default=lambda _: Reply())
    preflight: Script = field(default=lambda _: Reply())
    metrics: bool = True
    health: int = 200
    context_length: int = 4096
    length: int = LENGTH

    requests: list[Request] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    by_prompt: Counter[tuple[int, ...]] = field(default_factory=Counter)
    in_flight: int = 0
    most_in_flight: int = 0
    disconnects: int = 0
    generated: int = 0
    running: int | None = None
    remember: bool = True
    unanswered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.held: list[tuple[_Connection, Request]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def count(self) -> int:
        """Requests for answers, the preflight's not included."""
        return sum(self.by_prompt.values())

    async def start(self) -> None:
        """Listens, on the port of last time if there was one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stops listening and cuts every connection, as a killed server does."""
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def admit(self, path: str, payload: dict[str, Any]) -> Request:
        if path == "/v1/chat/completions":
            prompt_ids = self.model.prompt_ids(payload["messages"])
        else:
            prompt_ids = payload["input_ids"] if path == "/generate" else payload["prompt"]
        key = tuple(prompt_ids)
        request = Request(path, payload, prompt_ids, self.count, self.by_prompt[key])
        if not request.is_preflight:
            self.by_prompt[key] += 1
            if self.remember:
                self.requests.append(request)
        return request

    def body(self, request: Request, reply: Reply) -> dict[str, Any]:
        """The JSON of an answer, in the engine's form."""
        sampling = request.payload.get("sampling_params", request.payload)
        ids = reply.ids if reply.ids is not None else answer_ids(self.model, request.prompt_ids, self.length)
        limit = sampling.get(
            "max_completion_tokens", sampling.get("max_new_tokens", sampling.get("max_tokens"))
        )
        for stop in sampling.get("stop_token_ids", ()):
            if stop in ids:
                ids = ids[: ids.index(stop) + 1]
        finish = reply.finish or ("length" if limit is not None and len(ids) > limit else "stop")
        if reply.ids is None and limit is not None:
            ids = ids[:limit]
        self.generated += len(ids)
        stopped = finish == "stop" and ids[-1:] and ids[-1] in (END, *sampling.get("stop_token_ids", ()))
        text = self.model.text(
            ids[:-1] if stopped else ids, special=not sampling.get("skip_special_tokens", True)
        )
        answered = Answered(request.prompt_ids, ids, text, finish)
        if request.path == "/generate":
            body = sglang_body(answered, request.payload["rid"])
        elif "rid" in request.payload:
            body = sglang_chat_body(answered, self.model.name)
        else:
            body = openai_body(answered, self.model.name, chat=request.path == "/v1/chat/completions")
        if reply.padding:
            body["padding"] = "x" * reply.padding
        if reply.edit is not None:
            reply.edit(body)
        return body

    def let_go(self, reaction: Reply | Fail | Cut = Reply()) -> None:
        """Does so with every request that is held."""
        held, self.held = self.held, []
        for connection, waiting in held:
            connection._react(waiting, reaction)

    def page(self, path: str) -> tuple[int, bytes]:
        """What GET answers."""
        if path == "/health":
            return self.health, b""
        if path == "/v1/models":
            models = [{"id": self.model.name, "max_model_len": self.context_length}]
            return 200, orjson.dumps({"data": models})
        if path == "/metrics" and self.metrics:
            running = self.in_flight if self.running is None else self.running
            return 200, metrics_page(self.generated, running)
        return 404, b'{"detail":"Not Found"}'


class _Connection(asyncio.Protocol):
    """One connection of HTTP/1.1: a request at a time, bodies with Content-Length."""

    def __init__(self, server: EngineServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._close = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._server._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._busy:
            self._server.disconnects += 1
            self._end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._buffer[:head_end])
        length = 0
        self._close = b"connection: close" in head.lower()
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if len(self._buffer) < head_end + 4 + length:
            return
        body = bytes(self._buffer[head_end + 4 : head_end + 4 + length])
        del self._buffer[: head_end + 4 + length]
        if self._server.remember:
            self._server.heads.append(head)
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ", 2)
        if method == "GET":
            if path not in self._server.unanswered:
                self._send(*self._server.page(path))
        else:
            self._ask(path, orjson.loads(body))

    def _ask(self, path: str, payload: dict[str, Any]) -> None:
        server = self._server
        request = server.admit(path, payload)
        self._busy = True
        server.in_flight += 1
        server.most_in_flight = max(server.most_in_flight, server.in_flight)
        reaction = server.preflight(request) if request.is_preflight else server.script(request)
        if isinstance(reaction, Stall):
            return
        if isinstance(reaction, Hold):
            server.held.append((self, request))
            if len(server.held) >= reaction.until:
                server.let_go()
        elif reaction.delay:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(reaction.delay, self._react, request, reaction)
        else:
            self._react(request, reaction)

    def _react(self, request: Request, reaction: Reply | Fail | Cut) -> None:
        self._end()
        match reaction:
            case Fail(status, body, headers):
                self._send(status, body, headers)
            case Cut():
                data = orjson.dumps(self._server.body(request, Reply()))
                self._write(response_head(200, len(data)) + data[: len(data) // 2])
                assert self._transport is not None
                self._transport.close()
            case Reply():
                answer = self._server.body(request, reaction)
                if request.payload.get("stream"):
                    self._stream(request, answer)
                else:
                    self._send(200, orjson.dumps(answer))

    def _stream(self, request: Request, body: dict[str, Any]) -> None:
        events = sglang_events(body) if request.path == "/generate" else openai_events(body)
        lines = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)
        self._write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

    def _end(self) -> None:
        self._busy = False
        self._server.in_flight -= 1

    def _send(self, status: int, body: bytes, headers: tuple[str, ...] = ()) -> None:
        self._write(response_head(status, len(body), headers) + body)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)
        if self._close:
            self._transport.close()


async def _serve(arguments: argparse.Namespace) -> None:
    rng = random.Random(arguments.seed)

    def script(_: Request) -> Reaction:
        slow = rng.random() < arguments.tail
        return Reply(delay=arguments.delay * (15 if slow else 1))

    server = EngineServer(
        TinyModel(arguments.model), script, length=arguments.length, remember=False, context_length=1 << 20
    )
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serves until it is killed; prints the port first."""
    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds of an answer")
    parser.add_argument("--tail", type=float, default=0.0, help="share of answers that take 15 times as long")
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens of an answer")
    parser.add_argument("--seed", type=int, default=0)
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
