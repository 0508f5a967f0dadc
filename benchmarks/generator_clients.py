"""One client of the generator's benchmark, in a process of its own on one core: prints as JSON what it took.

Its imports are no part of it; all else is, from reading the model to the last fsync.
"""

# ruff: noqa: PLC0415 - each client imports what it alone needs

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import logging
import pstats
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY)]

from benchmarks.processes import settle_down  # noqa: E402

from tests.support.memory import peak_memory  # noqa: E402

_PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Task:
    """What is to be asked, and of whom."""

    url: str
    engine: str
    model: Path
    name: str
    prompts: Path
    folder: Path
    concurrency: int
    tokens: int


def draftmill(task: Task) -> Callable[[], None]:
    """`draftmill generate`, durable as always."""
    import tests.support.without_torch  # noqa: F401, I001 - as in the image, before anything else
    import transformers
    import uvloop

    from draftmill_jobs import main as _program
    from draftmill_jobs.generate import worker

    assert transformers.AutoTokenizer
    assert uvloop
    assert worker
    config = task.folder / "job.json"
    fields = {
        "model": {"name": task.name, "path": str(task.model)},
        "output": {"path": str(task.folder / "out")},
        "datasets": [{"name": "A", "source": {"file": {"path": str(task.prompts)}}}],
        "sampling": {"maxCompletionTokens": task.tokens, "temperature": "0"},
        "generation": {"concurrency": task.concurrency},
        "endpoints": [{"name": "s0", "url": task.url, "engine": task.engine}],
    }
    config.write_text(json.dumps(fields))

    def run() -> None:
        code = _program.main(["generate", "--config", str(config)])
        if code:
            raise SystemExit(f"draftmill generate ended with {code}")

    return run


def aiohttp_loop(task: Task) -> Callable[[], None]:
    """A bare loop on aiohttp that looks at nothing and writes nothing."""
    import aiohttp
    import orjson
    import uvloop

    async def ask_all() -> None:
        connector, no_limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=no_limit) as session:
            lines = iter(task.prompts.read_bytes().splitlines())

            async def ask_on() -> None:
                for line in lines:
                    messages = [{"role": "user", "content": orjson.loads(line)["prompt"]}]
                    body = orjson.dumps(
                        {"model": task.name, "messages": messages, "max_completion_tokens": task.tokens}
                    )
                    async with session.post(task.url + _PATH, data=body) as answer:
                        orjson.loads(await answer.read())

            await asyncio.gather(*(ask_on() for _ in range(task.concurrency)))

    return lambda: uvloop.run(ask_all())


def datatrove(task: Task, checkpoints: Path | None = None) -> Callable[[], None]:
    """datatrove's InferenceRunner against an endpoint; without its checkpoints, the faster way."""
    from datatrove.data import Document
    from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
    from datatrove.pipeline.writers import JsonlWriter

    async def ask(document: Any, generate: Callable[[dict[str, object]], Awaitable[object]]) -> object:
        messages = [{"role": "user", "content": document.text}]
        return await generate({"messages": messages, "max_tokens": task.tokens, "return_token_ids": True})

    runner = InferenceRunner(
        rollout_fn=ask,
        config=InferenceConfig(
            server_type="endpoint",
            model_name_or_path=task.name,
            endpoint_url=task.url,
            max_concurrent_generations=task.concurrency,
            metric_interval=3600,
        ),
        output_writer=JsonlWriter(
            str(task.folder / "out"),
            output_filename="${rank}_c${chunk_index}.jsonl" if checkpoints else None,
            compression=None,
        ),
        checkpoints_local_dir=None if checkpoints is None else str(checkpoints),
    )
    documents = [
        Document(text=json.loads(line)["prompt"], id=str(number))
        for number, line in enumerate(task.prompts.read_text().splitlines())
    ]
    return lambda: runner.run(documents, rank=0, world_size=1)


def datatrove_checkpoints(task: Task) -> Callable[[], None]:
    """The same with its checkpoints: what a run needs to survive a kill."""
    return datatrove(task, task.folder / "checkpoints")


CLIENTS = {
    "draftmill": draftmill,
    "aiohttp": aiohttp_loop,
    "datatrove": datatrove,
    "datatrove-checkpoints": datatrove_checkpoints,
}


class _ProofNoted(logging.Handler):
    """Notes when the preflight was passed: what comes before depends on the model, not on the rows."""

    at: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if "passed the preflight" in record.msg:
            self.at = time.monotonic()


def main() -> None:
    """Runs the client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--core", type=int, required=True, help="the core to run on")
    parser.add_argument("--url", required=True)
    parser.add_argument("--engine", default="VLLM")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="most tokens of an answer")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    chosen = vars(parser.parse_args())
    settle_down(chosen.pop("core"))
    client, profiled = CLIENTS[chosen.pop("client")], chosen.pop("profile")
    task = Task(**chosen)
    task.folder.mkdir(parents=True)
    run = client(task)
    proof = _ProofNoted()
    logging.getLogger("draftmill_jobs.generate.preflight").addHandler(proof)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    if profiled:
        profile = cProfile.Profile()
        profile.runcall(run)
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(60)
        return
    run()
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "seconds": ended - started,
        "seconds_after_preflight": ended - (proof.at or started),
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "system": after.ru_stime - before.ru_stime,
        "bytes": peak_memory(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
