"""The generator and a server's own benchmark by turns, on a real vLLM."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

from benchmarks.generator_processes import run, run_client
from benchmarks.processes import cores
from benchmarks.results import Result

from draftmill_dev import cache, environment, model, venvs
from tests.support.vllm_server import serving_vllm

PANDAS = ["pandas==2.3.3", "python-dateutil", "six", "pytz", "tzdata"]
ROUNDS = 3  # so that a busy minute meets every client
VLLM_ROWS, VLLM_TOKENS, VLLM_CONCURRENCY = 400, 64, 16


def vllm(folder: Path, scale: float) -> Result:
    """Tokens per second of a real server, beside its own benchmark."""
    target, rows = model.build() / model.NAME, max(2 * VLLM_CONCURRENCY, round(VLLM_ROWS * scale))
    prompts = folder / "prompts.jsonl"
    questions = (f"What is {n} plus {n + 7}? Explain each step." for n in range(rows))
    prompts.write_text("".join(json.dumps({"prompt": question}) + "\n" for question in questions))
    flags = ["--no-enable-prefix-caching"]
    with serving_vllm(target, flags, folder / "server.log", name=model.NAME) as url:
        _bench_serve(url, target, prompts, folder, min(rows, 2 * VLLM_CONCURRENCY))  # warms the server up
        pairs = [
            (_bench_serve(url, target, prompts, folder, rows), _generate_on(url, target, prompts, folder))
            for _ in range(ROUNDS)
        ]
    theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    return Result(
        "vllm",
        f"{ratio:.3f} of vllm bench serve: {ours:,.0f} of {theirs:,.0f} output tokens/s, "
        f"{VLLM_CONCURRENCY} in flight",
        ">= 0.98",
        met=ratio >= 0.98,
    )


def _bench_serve(url: str, target: Path, prompts: Path, folder: Path, rows: int) -> float:
    command = [
        *(str(environment.build() / "bin" / "vllm"), "bench", "serve", "--backend", "openai-chat"),
        *("--base-url", url, "--endpoint", "/v1/chat/completions"),
        *("--model", str(target), "--served-model-name", model.NAME, "--tokenizer", str(target)),
        *("--dataset-name", "custom", "--dataset-path", str(prompts), "--skip-chat-template"),
        *("--disable-shuffle", "--custom-output-len", str(VLLM_TOKENS), "--num-prompts", str(rows)),
        *("--max-concurrency", str(VLLM_CONCURRENCY), "--temperature", "0", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(folder), "--result-filename", "bench.json"),
    ]
    run(command, {**environment.VARIABLES, "PYTHONPATH": str(_pandas())})
    throughput: float = json.loads((folder / "bench.json").read_text())["output_throughput"]
    return throughput


def _pandas() -> Path:
    """A folder with what the server's own benchmark reads prompts with, and the server has no need of."""

    def make(folder: Path) -> None:
        python = str(environment.build() / "bin" / "python")
        install = ["pip", "install", "--python", python, "--target", folder / "lib", "--no-deps"]
        venvs.run_uv([*install, *PANDAS], folder)

    return cache.build("bench-pandas", PANDAS, make) / "lib"


def _generate_on(url: str, target: Path, prompts: Path, folder: Path) -> float:
    out = folder / "client"
    shutil.rmtree(out, ignore_errors=True)  # a round before
    said = run_client(
        "draftmill",
        f"--core={cores()[0]}",
        f"--url={url}",
        f"--model={target}",
        f"--name={model.NAME}",
        f"--prompts={prompts}",
        f"--folder={out}",
        f"--concurrency={VLLM_CONCURRENCY}",
        f"--tokens={VLLM_TOKENS}",
    )
    records = (out / "out/A/raw_responses.jsonl").read_text().splitlines()
    tokens = sum(json.loads(record)["completion_tokens"] for record in records)
    seconds: float = json.loads(said.splitlines()[-1])["seconds_after_preflight"]
    return tokens / seconds
