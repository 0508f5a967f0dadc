"""A server that is never the bottleneck: it gives every question the same answer, in a fixed time.

The preflight's small questions are answered in earnest. `/stat` says what happened and what it cost.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY)]

import orjson  # noqa: E402
import uvloop  # noqa: E402
from benchmarks.processes import settle_down  # noqa: E402

from draftmill_jobs.model.tokenizer import Tokenizer  # noqa: E402
from tests.support.engine_formats import (  # noqa: E402
    Answered,
    metrics_page,
    openai_body,
    response_head,
    sglang_body,
)

_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_CLOSES = re.compile(rb"connection: *close", re.IGNORECASE)


class CannedServer:
    """Answers each route with the answer to the first question that came there.

    Attributes:
        questions: How many were answered, the preflight's not among them.
        waiting: How many are being answered.
        first: Monotonic seconds of the first question.
        last: Of the last answer.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, name: str, ids: list[int], delay: float, shows_marks: bool
    ) -> None:
        self.delay = delay
        self.questions = self.waiting = self.most_waiting = 0
        self.first = self.last = 0.0
        self._tokenizer = tokenizer
        self._name = name
        self._ids = ids
        self._shows_marks = shows_marks
        self._canned: dict[bytes, bytes] = {}

    def page(self, path: bytes) -> bytes:
        """What GET answers."""
        match path:
            case b"/health":
                return _whole(b"")
            case b"/metrics":
                return _whole(metrics_page(self.questions * len(self._ids), self.waiting))
            case b"/v1/models":
                return _whole(orjson.dumps({"data": [{"id": self._name, "max_model_len": 1 << 20}]}))
            case b"/stat":
                stat = {
                    "questions": self.questions,
                    "most_waiting": self.most_waiting,
                    "seconds": self.last - self.first,
                    "cpu": time.process_time(),
                }
                return _whole(orjson.dumps(stat))
            case _:
                return response_head(404, 0)

    def to_preflight(self, path: bytes, body: bytes) -> bytes:
        """The answer to a question of the preflight, with its limits."""
        payload = orjson.loads(body)
        sampling = payload.get("sampling_params", payload)
        ids = self._ids[: sampling.get("max_completion_tokens", sampling.get("max_new_tokens"))]
        stops = [ids.index(stop) for stop in sampling.get("stop_token_ids", ()) if stop in ids]
        if stops:
            return self._answer(path, payload, ids[: min(stops) + 1], "stop")
        return self._answer(path, payload, ids, "length")

    def to_question(self, path: bytes, body: bytes) -> bytes:
        """The answer to every other question."""
        if path not in self._canned:
            self._canned[path] = self._answer(path, orjson.loads(body), self._ids, "stop")
        return self._canned[path]

    def _answer(self, path: bytes, payload: dict[str, Any], ids: list[int], finish: str) -> bytes:
        said = ids[:-1] if finish == "stop" else ids
        decode = self._tokenizer.decode if self._shows_marks else self._tokenizer.decode_plain
        if path == b"/generate":
            answered = Answered(payload["input_ids"], ids, decode(said), finish)
            body = sglang_body(answered, payload["rid"])
            if finish == "stop":
                del body["prompt_token_ids"]  # another question has others, though as many
        else:
            prompt = self._tokenizer.prompt_ids(payload["messages"], None, {})
            body = openai_body(Answered(prompt, ids, decode(said), finish), self._name, chat=True)
        return _whole(orjson.dumps(body))

    def question_came(self) -> None:
        """Counts a question."""
        if not self.first:
            self.first = time.monotonic()
        self.questions += 1
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)

    def answer_goes(self) -> None:
        """Counts an answer."""
        self.waiting -= 1
        self.last = time.monotonic()


class _Connection(asyncio.Protocol):
    def __init__(self, server: CannedServer) -> None:
        self._server = server
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        head, end, body = data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or (length is not None and len(body) < int(length[1])):
            self._received = data
            return
        self._received = b""
        method, path, _ = head.split(b" ", 2)
        self._closes = _CLOSES.search(head) is not None
        if method == b"GET":
            self._say(self._server.page(path))
        elif b'"preflight-' in body:
            self._say(self._server.to_preflight(path, body))
        else:
            self._server.question_came()
            answer = self._server.to_question(path, body)
            if self._server.delay:
                asyncio.get_running_loop().call_later(self._server.delay, self._answer, answer)
            else:
                self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        self._server.answer_goes()
        self._say(answer)

    def _say(self, said: bytes) -> None:
        self._transport.write(said)
        if self._closes:
            self._transport.close()


def _whole(body: bytes) -> bytes:
    return response_head(200, len(body), ("content-type: application/json", "server: canned")) + body


async def _serve(server: CannedServer) -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Connection(server), "127.0.0.1", 0, backlog=8192)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serves until it is killed; prints the port first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core", type=int, required=True, help="the core to run on")
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--name", required=True, help="under which the model is served")
    parser.add_argument("--answer", type=Path, required=True, help="the answer's token ids, a JSON list")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds of an answer")
    parser.add_argument("--shows-marks", action="store_true", help="the text has special tokens")
    chosen = parser.parse_args()
    settle_down(chosen.core)
    tokenizer = Tokenizer.load(chosen.model, trust_remote_code=False)
    server = CannedServer(
        tokenizer,
        name=chosen.name,
        ids=orjson.loads(chosen.answer.read_bytes()),
        delay=chosen.delay,
        shows_marks=chosen.shows_marks,
    )
    uvloop.run(_serve(server))


if __name__ == "__main__":
    main()
