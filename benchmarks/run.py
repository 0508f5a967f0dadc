"""Throughput of the generator beside a rival's, on a server that answers at once: `make bench`.

Every client runs in a process of its own against the same server, one after another. CPU per request is the
figure that a busy machine bends least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "dev")]

from draftmill_dev import cache, venvs  # noqa: E402
from tests.support.tiny_model import make_tiny_model  # noqa: E402

RIVAL = [
    "datatrove==0.10.1",
    "httpx",
    "aiosqlite",
    "xxhash",
    "aiofiles",
    "orjson",
]
CASES = {"16 tokens": (16, 20_000), "8,192 tokens": (8192, 2_000)}
CLIENTS = ("draftmill", "datatrove")


_LONGEST = 300.0  # seconds of one client


def rival_python() -> Path:
    """The Python of an environment with the rival, made once."""

    def make(folder: Path) -> None:
        venv = folder / "venv"
        cache.run([venvs.uv(), "venv", "--python", sys.executable, venv], folder)
        cache.run([venvs.uv(), "pip", "install", "--python", venv / "bin/python", *RIVAL], folder)

    return cache.build("bench", [*RIVAL, sys.version], make) / "venv" / "bin" / "python"


@contextmanager
def engine(model: Path, length: int) -> Iterator[str]:
    """A server in a process of its own; yields its address."""
    command = [
        sys.executable,
        "-m",
        "tests.support.engine_server",
        "--model",
        str(model),
        "--length",
        str(length),
    ]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def measure(client: str, url: str, prompts: Path, folder: Path) -> dict[str, float]:
    """Runs one client over all prompts."""
    python = sys.executable if client == "draftmill" else str(rival_python())
    script = str(Path(__file__).with_name("clients.py"))
    command = [python, script, client, "--url", url, "--prompts", str(prompts), "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST)
    if done.returncode:
        raise SystemExit(f"{client} failed:\n{done.stderr[-4000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests to send")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    chosen = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = make_tiny_model(folder / "model")
        for case, (length, requests) in CASES.items():
            count = max(200, int(requests * chosen.scale))
            prompts = folder / f"{length}.jsonl"
            rows = ({"prompt": f"w{i % 1000} w{i // 1000} " + "x" * 190} for i in range(count))
            prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
            with engine(model.path, length) as url:
                for client in CLIENTS:
                    figures = measure(client, url, prompts, folder / f"{length}-{client}")
                    results.append({"case": case, "client": client, "requests": count, **figures})
                    _print(results[-1], header=len(results) == 1)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2))


def _print(row: dict[str, object], *, header: bool) -> None:
    if header:
        print(f"{'answers':<14}{'client':<26}{'requests/s':>12}{'CPU ms/request':>16}{'peak MB':>10}")
    requests, seconds, cpu = (float(str(row[name])) for name in ("requests", "seconds", "cpu"))
    rate, cost = requests / seconds, 1000 * cpu / requests
    print(
        f"{row['case']:<14}{row['client']:<26}{rate:>12,.0f}{cost:>16.2f}{row['megabytes']:>10.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
