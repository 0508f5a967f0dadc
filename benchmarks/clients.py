"""One client of the benchmark, in a process of its own: asks every prompt, prints as JSON what that took."""

# ruff: noqa: PLC0415 - each client imports what it alone needs

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

CONCURRENCY = 200


def draftmill(url: str, prompts: Path, folder: Path) -> Callable[[], None]:
    """The generator, durable as always."""
    import transformers
    import uvloop

    from draftmill_api.jobconfig import SynthJobConfig
    from draftmill_jobs.generate.worker import generate
    from draftmill_jobs.shared.config import load

    assert transformers.AutoTokenizer
    config = folder / "job.json"
    fields = {
        "model": {"name": "tiny", "path": str(folder.parent / "model")},
        "output": {"path": str(folder / "out")},
        "datasets": [{"name": "A", "source": {"file": {"path": str(prompts)}}}],
        "sampling": {"maxCompletionTokens": 100_000},
        "generation": {"concurrency": CONCURRENCY},
        "endpoints": [{"name": "s0", "url": url, "engine": "VLLM"}],
    }
    config.write_text(json.dumps(fields))
    return lambda: uvloop.run(
        _generate(generate(config, load(config, SynthJobConfig), http_port=None, grace=5.0))
    )


async def _generate(run: Awaitable[object]) -> None:
    await run


def datatrove(url: str, prompts: Path, folder: Path) -> Callable[[], None]:
    """datatrove's InferenceRunner against an endpoint; without its checkpoints, the faster way."""
    from datatrove.data import Document
    from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
    from datatrove.pipeline.writers import JsonlWriter

    rows = [json.loads(line)["prompt"] for line in prompts.read_text().splitlines()]

    async def rollout(
        document: Document, generate: Callable[[dict[str, object]], Awaitable[object]]
    ) -> object:
        messages = [{"role": "user", "content": document.text}]
        return await generate({"messages": messages, "max_tokens": 100_000, "return_token_ids": True})

    runner = InferenceRunner(
        rollout_fn=rollout,
        config=InferenceConfig(
            server_type="endpoint",
            model_name_or_path="tiny",
            endpoint_url=url,
            max_concurrent_generations=CONCURRENCY,
            metric_interval=3600,
        ),
        output_writer=JsonlWriter(str(folder / "out"), compression=None),
    )
    return lambda: runner.run(
        [Document(text=text, id=str(i)) for i, text in enumerate(rows)], rank=0, world_size=1
    )


CLIENTS = {"draftmill": draftmill, "datatrove": datatrove}


def main() -> None:
    """Runs the client."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True)
    run = CLIENTS[chosen.client](chosen.url, chosen.prompts, chosen.folder)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    run()
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "megabytes": after.ru_maxrss / 1024,
    }
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
