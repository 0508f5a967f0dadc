"""A whole extraction on CPUs beside the prefill of its own server: `make bench-extract`.

run: `draftmill extract` from its start to the sealed store, preflight and all checks included, against a
plain client that has the same server prefill the same rows and looks at nothing that comes back. Pair by
pair, one after the other, and the median of the pairs counts. The ratio is told with plan and finish too, but
need not be anything: a run holds no server meanwhile. What a cluster adds (pods, images, the loading of the
model) is no part of either.
extractor: its peak of memory, of few rows, of many, and of few with an output head that is larger than all it
may have. What counts is anonymous memory: pages of mapped files, as of the head and of what a server staged,
are given back when memory is short.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "dev")]

import aiohttp  # noqa: E402
import numpy as np  # noqa: E402
from benchmarks.results import Bench, Result, arguments, measure  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

from draftmill_dev import model  # noqa: E402
from tests.support.extract_job import ExtractJob, make_record  # noqa: E402
from tests.support.headed_model import make_headed_model  # noqa: E402
from tests.support.hidden_states_server import HiddenStatesServer, by_server, serving  # noqa: E402
from tests.support.memory import anonymous_memory  # noqa: E402
from tests.support.ports import free_port  # noqa: E402

PAIRS = 3
ROWS, PROMPT, SHORTEST, LONGEST = 1000, 10, 30, 150  # lengths in tokens
VOCABULARY = range(100, 49_000)
LAYER_IDS = [2, 15, 27, 30]
AT_ONCE = 64  # requests, as many as the server batches
IN_FLIGHT = AT_ONCE * LONGEST  # tokens
FEW, MANY = 2_000, 20_000
LIMIT = 500e6  # bytes
HEAD_ROWS, HEAD_WIDTH = 131_072, 1024  # an output head of 537 MB in float32
LOOK = 0.02  # seconds between looks at a program's memory


class Spent(NamedTuple):
    """What a program took: seconds, and the most bytes of anonymous memory that were seen."""

    seconds: float
    peak: int


def run(folder: Path, scale: float) -> Result:
    """Tokens per second of the extractor and of the server when nobody looks at what it writes."""
    target = model.build() / model.NAME
    rng = random.Random(0)
    rows = [
        rng.choices(VOCABULARY, k=rng.randint(SHORTEST, LONGEST)) for _ in range(max(8, round(ROWS * scale)))
    ]
    tokens = sum(map(len, rows))
    pairs: list[tuple[float, float]] = []
    whole: list[float] = []
    peaks: list[int] = []
    with serving(target, folder, dtype="float32", layer_ids=LAYER_IDS) as server:
        asyncio.run(_prefill(server, rows[:AT_ONCE]))  # what is loaded or grown with the first requests
        for pair in range(PAIRS):
            began = time.perf_counter()
            asyncio.run(_prefill(server, rows))
            plain = time.perf_counter() - began
            _empty(server.staging)
            job = _job(folder / f"job-{pair}", target, server, rows)
            planned, spent, finished = (_run_step(job, step) for step in ("plan", "extract", "finish"))
            shutil.rmtree(job.folder)
            pairs.append((tokens / spent.seconds, tokens / plain))
            whole.append(plain / (planned.seconds + spent.seconds + finished.seconds))
            peaks.append(spent.peak)
    ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(ours / plain for ours, plain in pairs)
    rates = f"{ours:,.0f} of {plain:,.0f} tokens/s in {max(peaks) / 1e6:.0f} MB"
    return Result(
        "run",
        f"{ratio:.2f} of its server's prefill: {rates}; {statistics.median(whole):.2f} with plan and finish",
        ">= 0.9",
        met=ratio >= 0.9 and max(peaks) < LIMIT,
    )


def extractor(folder: Path, scale: float) -> Result:
    """Peak of memory, with a stand-in for a server."""
    small, large = make_headed_model(folder / "small"), _large_headed_model(folder / "large")
    few, many = round(FEW * scale), round(MANY * scale)
    peaks = {
        f"{few:,} rows": _peak(folder / "few", small, few),
        f"{many:,} rows": _peak(folder / "many", small, many),
        f"{few:,} and a large head": _peak(folder / "head", large, few),
    }
    return Result(
        "extractor",
        ", ".join(f"{peak / 1e6:.0f} MB for {what}" for what, peak in peaks.items()),
        "< 500 MB",
        met=all(peak < LIMIT for peak in peaks.values()),
    )


def _peak(place: Path, target: Path, rows: int) -> int:
    port, staging = free_port(), place / "staging"
    job = ExtractJob(place / "job", target).add_many(rows, longest=16)
    job.fields |= {
        "backend": "VLLM",
        "staging": str(staging),
        "endpoints": [{"name": "s0", "url": f"http://127.0.0.1:{port}", "engine": "VLLM"}],
    }
    options = {"model": target, "staging": staging, "port": port, "asked": place / "asked"}
    command = [sys.executable, "-m", "tests.support.states_program"]
    server = subprocess.Popen(
        [*command, *(f"--{name}={value}" for name, value in options.items())], cwd=REPOSITORY
    )
    try:
        return _run_step(job, "extract").peak
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(place)


def _large_headed_model(folder: Path) -> Path:
    make_headed_model(folder, hidden_size=HEAD_WIDTH, vocab_size=HEAD_ROWS)
    numbers = np.random.default_rng(0)
    tensors = {
        "model.norm.weight": numbers.uniform(0.5, 1.5, HEAD_WIDTH).astype(np.float32),
        "lm_head.weight": numbers.standard_normal((HEAD_ROWS, HEAD_WIDTH), np.float32),
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


BENCHES: tuple[Bench, ...] = (run, extractor)


async def _prefill(server: HiddenStatesServer, rows: Sequence[list[int]]) -> None:
    """The rival: as many requests at once as the server batches, and nothing else."""
    at_once = asyncio.Semaphore(AT_ONCE)
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def ask(ids: list[int]) -> None:
            body = {"model": model.NAME, "prompt": ids, "max_tokens": 1, "temperature": 0.0}
            async with at_once, session.post(f"{server.url}/v1/completions", json=body) as answer:
                answer.raise_for_status()
                await answer.read()

        await asyncio.gather(*map(ask, sorted(rows, key=len, reverse=True)))


def _job(place: Path, target: Path, server: HiddenStatesServer, rows: Sequence[list[int]]) -> ExtractJob:
    job = ExtractJob(place, target)
    job.records += [
        make_record(number, ids[:PROMPT], ids[PROMPT:], fingerprint=job.fingerprint)
        for number, ids in enumerate(rows)
    ]
    job.fields |= {
        "model": {"name": model.NAME, "path": str(target)},
        "layers": {"default": True},
        **by_server(server, dtype="Float32", inFlightTokens=IN_FLIGHT),
    }
    return job


def _run_step(job: ExtractJob, step: str) -> Spent:
    """Runs a step as a program."""
    command = [sys.executable, "-P", "-m", "draftmill_jobs", step, "--config", str(job.write())]
    peak = 0
    with (job.folder / "log").open("w") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None:
            peak = max(peak, anonymous_memory(process.pid))
            time.sleep(LOOK)
        seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"draftmill {step} failed:\n{(job.folder / 'log').read_text()[-4000:]}")
    return Spent(seconds, peak)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)  # the server may be giving a file its name


def main() -> int:
    """Measures and prints a table; 1 when a figure is missed."""
    return measure(BENCHES, arguments(__doc__, BENCHES).parse_args())


if __name__ == "__main__":
    sys.exit(main())
