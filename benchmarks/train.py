"""Training speed beside SpecForge, speculators and a plain loop: `make bench-train`.

Every contender runs in a process of its own, one after another, on the same rows and weights; in several
rounds, so that a busy minute meets them all. The best of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "dev")]

from draftmill_dev import cache, venvs  # noqa: E402

WITHOUT_DEPENDENCIES = ["specforge==0.2.0", "speculators==0.9.0", "hs-connectors==0.9.0"]
DEPENDENCIES = [
    *("torch==2.13.0", "transformers==5.24.0", "numpy", "safetensors", "pydantic>=2.12", "pydantic-settings"),
    *(
        "datasets",
        "loguru",
        "typer",
        "accelerate",
        "psutil",
        "tqdm",
        "setuptools",
        "orjson",
        "openai",
        "aiohttp",
    ),
]
CONTENDERS = ("draftmill", "naive", "specforge", "speculators")
CASES = {"one-row": "one row of 512 tokens", "short-rows": "rows of 100 to 300 tokens"}
SETTING = "H=256, I=688, V=2048, DV=512, 3 steps of training-time test, float32, with AdamW"


def rivals_python() -> Path:
    """The Python of an environment with both rivals, made once; without the servers that they ask for."""

    def make(folder: Path) -> None:
        venv = folder / "venv"
        venvs.run_uv(["venv", "--python", sys.executable, venv], folder)
        install = ["pip", "install", "--python", venv]
        venvs.run_uv([*install, *DEPENDENCIES], folder)
        venvs.run_uv([*install, "--no-deps", *WITHOUT_DEPENDENCIES], folder)

    key = [*WITHOUT_DEPENDENCIES, *DEPENDENCIES, sys.version]
    return cache.build("bench-train", key, make) / "venv" / "bin" / "python"


def run(contender: str, *options: str, limit: float = 900.0) -> str:
    """Runs one contender and returns the last line that it prints."""
    python = rivals_python() if contender in ("specforge", "speculators") else sys.executable
    command = [str(python), str(REPOSITORY / "benchmarks" / "train_contenders.py"), contender, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()[-1]


def whole_training(threads: int) -> dict[str, float]:
    """Everything together: reading, packing, steps, checkpoints."""
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "train_whole.py"), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the whole training failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def vocabulary_seconds() -> float:
    """Making the map of Kimi's size."""
    program = (
        "import time, numpy as np;"
        "from draftmill_jobs.train.vocabulary import choose_vocabulary;"
        "counts = np.random.default_rng(0).zipf(1.5, 163_840).astype(np.int64);"
        "began = time.perf_counter(); v = choose_vocabulary(counts, 32_000); v.d2t; v.t2d;"
        "print(time.perf_counter() - began)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Measures and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of one contender on one case in one round"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument(
        "--losses", action="store_true", help="print what each loses on one small case, and end"
    )
    chosen = parser.parse_args()
    if chosen.losses:
        for contender in CONTENDERS:
            print(contender, run(contender, "--losses"))
        return
    print(f"{SETTING}, {chosen.threads} threads\n")
    results: dict[str, dict[str, dict[str, float]]] = {}
    for case, words in CASES.items():
        best = {name: {"tokens_per_second": 0.0, "tokens_per_cpu_second": 0.0} for name in CONTENDERS}
        for _ in range(chosen.rounds):
            for name in CONTENDERS:
                options = ("--case", case, "--seconds", str(chosen.seconds), "--threads", str(chosen.threads))
                found = json.loads(run(name, *options))
                best[name] = {key: max(value, found[key]) for key, value in best[name].items()}
        results[case] = best
        _print(words, best)
    whole = whole_training(chosen.threads)
    print(
        f"a whole training from a store on disk, rows of 100 to 300 tokens: "
        f"{whole['tokens_per_second']:,.0f} tokens/s, data wait {whole['data_wait']:.1%}"
    )
    seconds = vocabulary_seconds()
    print(f"draft vocabulary of 32,000 among 163,840: {seconds:.3f} s")
    if chosen.json:
        figures = {
            "cases": results,
            "whole": whole,
            "vocabulary_seconds": seconds,
            "measured": time.strftime("%Y-%m-%d"),
        }
        chosen.json.write_text(json.dumps(figures, indent=2))


def _print(case: str, best: dict[str, dict[str, float]]) -> None:
    print(f"{case:<28}{'tokens/s':>12}{'tokens/CPU s':>14}{'draftmill is':>16}")
    ours = best["draftmill"]["tokens_per_second"]
    for name, figures in best.items():
        speed, economy = figures.values()
        print(f"  {name:<26}{speed:>12,.0f}{economy:>14,.0f}{ours / speed:>15.2f}x", flush=True)
    print()


if __name__ == "__main__":
    main()
