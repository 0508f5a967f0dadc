"""Going on where a million records end, and the plan over as many prompts: `make bench-resume`.

Each line of the table is one whole life of `draftmill generate` or `plan`, from the interpreter's first
instruction to its exit code, in a folder that an earlier attempt left behind: CPU seconds, which a busy
machine bends least, and the most memory that the program had. A thousand rows are left to do, so the line
ends with the last of them; the seconds without a name are what a user waits. Public failure 31 (vllm#30268,
#52505): a million rows neither fill the memory nor wait for the end to be written.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import orjson  # noqa: E402
from benchmarks.results import Result, arguments, measure  # noqa: E402

from draftmill_api.jobconfig import SynthJobConfig  # noqa: E402
from draftmill_api.record import prompt_key  # noqa: E402
from draftmill_jobs.model.facts import read_model  # noqa: E402
from draftmill_jobs.prompts.index import read_prompts, write_index  # noqa: E402
from draftmill_jobs.shared.folder import fingerprint_of, write_fingerprint  # noqa: E402
from draftmill_jobs.shared.settings import datasets_of  # noqa: E402
from tests.support.memory import peak_memory  # noqa: E402
from tests.support.server_program import server_program  # noqa: E402
from tests.support.tiny_model import TinyModel, make_tiny_model  # noqa: E402

ROWS: Final = 1_000_000
LEFT: Final = 1_000
"""Rows that the earlier attempt did not come to."""
MOST_CPU: Final = 20.0
"""Seconds."""
MOST_MEMORY: Final = 300
"""Megabytes."""
ANSWER: Final = 48
"""Tokens of an answer that is there already."""
_WORDS: Final = "Explain in a few sentences, for somebody who has never heard of it, what this is good for."


def resumed(folder: Path, scale: float) -> Result:
    """The same config again."""
    return _line("resumed", folder, scale, lambda dataset: dataset)


def capped(folder: Path, scale: float) -> Result:
    """With a token cap, for which the tokens of the answers that count must be known before any is asked."""
    return _line("capped", folder, scale, lambda dataset: {**dataset, "maxTokens": 10**12})


def shuffled(folder: Path, scale: float) -> Result:
    """The source's rows in another order, so that no answer stands where its prompt does."""

    def shuffle(dataset: dict[str, Any]) -> dict[str, Any]:
        path = Path(dataset["source"]["file"]["path"])
        lines = path.read_bytes().splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        path.write_bytes(b"".join(lines))
        return dataset

    return _line("shuffled", folder, scale, shuffle)


def shared(folder: Path, scale: float) -> Result:
    """One of two workers, where one worker wrote before."""
    return _line("shared", folder, scale, lambda dataset: dataset, worker="0/2")


def planned(folder: Path, scale: float) -> Result:
    """The look at all prompts before anything is asked."""
    rows = max(2 * LEFT, round(ROWS * scale))
    config = _config(folder, make_tiny_model(folder / "model"))
    config["sampling"] = {"maxCompletionTokens": 1000}
    with (folder / "prompts.jsonl").open("wb") as prompts:
        for number in range(rows):
            prompts.write(orjson.dumps({"prompt": _prompt(number)}) + b"\n")
    (folder / "job.json").write_text(json.dumps(config))
    return _result("planned", f"{rows:,} rows", _run("plan", folder / "job.json"))


def _line(
    name: str,
    folder: Path,
    scale: float,
    changed: Callable[[dict[str, Any]], dict[str, Any]],
    worker: str = "0/1",
) -> Result:
    rows, left = max(2 * LEFT, round(ROWS * scale)), LEFT
    model = make_tiny_model(folder / "model")
    config = _leave_behind(folder, model, rows, left)
    config["datasets"] = [changed(dataset) for dataset in config["datasets"]]
    with server_program(model) as url:
        config["endpoints"] = [{"name": "s0", "url": url, "engine": "VLLM"}]
        (folder / "job.json").write_text(json.dumps(config))
        took = _run("generate", folder / "job.json", worker)
    return _result(name, f"{rows:,} rows, {left:,} of them to do", took)


def _result(name: str, what: str, took: tuple[float, float, float]) -> Result:
    cpu, wall, memory = took
    return Result(
        name,
        f"{what}: {cpu:.1f} s of CPU, {wall:.1f} s, {memory:.0f} MB",
        f"{MOST_CPU:.0f} s, {MOST_MEMORY} MB",
        met=cpu < MOST_CPU and memory < MOST_MEMORY,
    )


def _config(folder: Path, model: TinyModel) -> dict[str, Any]:
    return {
        "model": {"name": model.name, "path": str(model.path)},
        "output": {"path": str(folder / "out")},
        "datasets": [{"name": "A", "source": {"file": {"path": str(folder / "prompts.jsonl")}}}],
        "sampling": {"maxCompletionTokens": 100_000},
        "generation": {"concurrency": 200},
    }


def _prompt(number: int) -> str:
    return f"w{number // 1000} w{number % 1000} {_WORDS}"


def _leave_behind(folder: Path, model: TinyModel, rows: int, left: int) -> dict[str, Any]:
    """Writes a source and what an attempt leaves that was killed near its end; returns the config."""
    source, output = folder / "prompts.jsonl", folder / "out"
    config = _config(folder, model)
    rng = random.Random(0)
    (output / "A").mkdir(parents=True)
    with source.open("wb") as prompts, (output / "A" / "raw_responses.jsonl").open("wb") as records:
        for number in range(rows):
            prompt = _prompt(number)
            prompts.write(orjson.dumps({"prompt": prompt}) + b"\n")
            if number < rows - left:
                records.write(_record(number, prompt, model, rng))
        records.write(b'{"id":"torn')
    parsed = SynthJobConfig.model_validate(config)
    (settings,) = datasets_of(parsed)
    write_fingerprint(settings.folder, fingerprint_of(settings, read_model(parsed.model), parsed.run))
    write_index(settings.folder, read_prompts(settings))
    return config


def _record(number: int, prompt: str, model: TinyModel, rng: random.Random) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    key = prompt_key(messages, None, {})
    prompt_ids, output_ids = model.prompt_ids(messages), [rng.randrange(200_000) for _ in range(ANSWER)]
    text = " ".join(f"word{token % 100}" for token in output_ids[: ANSWER // 2])
    record = {
        "id": key,
        "prompt_key": key,
        "sample_id": number,
        "dataset": "A",
        "turn": 0,
        "sample": 0,
        "prompt_ids": prompt_ids,
        "output_ids": output_ids,
        "prompt_tokens": len(prompt_ids),
        "completion_tokens": len(output_ids),
        "finish_reason": "stop",
        "status": "ok",
        "think": "none",
        "messages": messages,
        "tools": None,
        "chat_template_kwargs": {},
        "reasoning": None,
        "content": text,
        "text": text,
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_completion_tokens": 100_000},
        "model": {"name": "tiny", "fingerprint": "f" * 64},
        "server": "s0",
        "attempt": 1,
        "created": "2026-01-01T00:00:00Z",
        "latency_s": 1.5,
    }
    return orjson.dumps(record) + b"\n"


def _run(step: str, config: Path, worker: str = "0/1") -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak megabytes of one whole run of the program."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--run", step, str(config)],
        env={**os.environ, "DRAFTMILL_WORKER": worker},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{step} failed:\n{done.stderr[-4000:]}")
    cpu, memory = json.loads(done.stdout.splitlines()[-1])
    return cpu, time.monotonic() - began, memory / 1e6


def _program(step: str, config: str) -> None:
    import tests.support.without_torch  # noqa: F401, PLC0415 - as in the image, before anything else
    from draftmill_jobs.main import main  # noqa: PLC0415 - of the measured process only

    assert main([step, "--config", config]) == 0
    print(json.dumps([time.process_time(), peak_memory()]))


LINES = (planned, resumed, capped, shuffled, shared)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        _program(*sys.argv[2:])
    else:
        sys.exit(measure(LINES, arguments(__doc__, LINES).parse_args()))
