"""Training speed beside SpecForge, speculators and a plain loop: `make bench-train`.

Every contender runs in a process of its own, one after another, on the same rows and weights; in several
rounds, so that a busy minute meets them all. The best of the rounds counts. Below the tables stands what the
trainer has to reach; where it does not, how much of its step the matrix multiplies alone take.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "dev")]

from benchmarks.results import Result, show  # noqa: E402

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
RIVALS = ("specforge", "speculators")
BATCHINGS = {name: [()] for name in CONTENDERS} | {"specforge": [(), ("--apart",)]}
"""What one that pads its rows may do instead: whatever is the faster counts."""
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
    python = rivals_python() if contender in RIVALS else sys.executable
    command = [str(python), str(REPOSITORY / "benchmarks" / "train_contenders.py"), contender, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()[-1]


@dataclass(frozen=True)
class Figures:
    """The best of all rounds of one contender on one case."""

    tokens_per_second: float
    tokens_per_cpu_second: float
    setting: str

    @classmethod
    def of(cls, rounds: Sequence[dict[str, Any]]) -> Figures:
        """Each figure's best."""
        fastest = max(rounds, key=lambda found: found["tokens_per_second"])
        return cls(
            fastest["tokens_per_second"],
            max(found["tokens_per_cpu_second"] for found in rounds),
            fastest["setting"],
        )


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


def memory() -> Result:
    """The loss alone at Kimi's vocabulary, measured; what else a step of that drafter takes, computed."""
    peak = [sys.executable, "-m", "tests.support.loss_peak"]
    done = subprocess.run(peak, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    sizes = json.loads(run("draftmill", "--kimi"))
    measured, wide = int(done.stdout) / 1e9, sizes["target_logits"] / 1e9
    words = (
        f"loss {measured:.2f} GB, one [T, V] {wide:.2f}; computed: weights, gradient and moments "
        f"{sizes['trained'] / 1e9:.1f}, states {sizes['states'] / 1e9:.2f} GB"
    )
    return Result("memory", words, "no [T, V]", measured < wide)


def speed(case: str, best: Mapping[str, Figures], threads: int) -> list[Result]:
    """Ours against the better of the rivals, and on one row against the plain loop."""
    ours = best["draftmill"].tokens_per_second
    rival = max(RIVALS, key=lambda name: best[name].tokens_per_second)
    wanted = [(rival, 2.0)] + ([("naive", 1.3)] if case == "one-row" else [])
    results = []
    for name, least in wanted:
        times = ours / best[name].tokens_per_second
        words = f"{CASES[case]}: {ours:,.0f} tokens/s, {times:.2f} x {name}"
        results.append(Result("speed", words, f">= {least:g} x", times >= least))
        if times < least:
            print(_limit(case, times, name, threads))
    return results


def _limit(case: str, times: float, name: str, threads: int) -> str:
    """How much room there was: what of our step the matrix multiplies take by themselves."""
    options = ("--case", case, "--threads", str(threads), "--profile")
    share = float(json.loads(run("draftmill", *options))["multiplies"])
    return (
        f"  {CASES[case]}: {share:.0%} of draftmill's step is matrix multiplies; were there nothing else, it "
        f"would be {times / share:.2f} x {name}\n"
    )


def main() -> int:
    """Measures and prints tables; 1 when a figure is missed."""
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
        return 0
    print(f"{SETTING}, {chosen.threads} threads\n")
    cases, results = dict[str, dict[str, Figures]](), list[Result]()
    for case, words in CASES.items():
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        for _ in range(chosen.rounds):
            for name in CONTENDERS:
                options = ("--case", case, "--seconds", str(chosen.seconds), "--threads", str(chosen.threads))
                found[name] += [json.loads(run(name, *options, *batching)) for batching in BATCHINGS[name]]
        cases[case] = {name: Figures.of(rounds) for name, rounds in found.items()}
        _print(words, cases[case])
        results += speed(case, cases[case], chosen.threads)
    whole = whole_training(chosen.threads)
    words = (
        f"{whole['data_wait']:.1%} of a whole training from disk, {whole['tokens_per_second']:,.0f} tokens/s"
    )
    results.append(Result("data wait", words, "< 5 %", whole["data_wait"] < 0.05))
    seconds = vocabulary_seconds()
    words = f"draft vocabulary of 32,000 among 163,840: {seconds:.3f} s"
    results += [Result("map", words, "< 0.5 s", seconds < 0.5), memory()]
    for number, result in enumerate(results):
        show(result, header=number == 0)
    if chosen.json:
        tables = {case: {name: asdict(one) for name, one in best.items()} for case, best in cases.items()}
        figures = {
            "cases": tables,
            "results": [asdict(result) for result in results],
            "measured": time.strftime("%Y-%m-%d"),
        }
        chosen.json.write_text(json.dumps(figures, indent=2))
    return 0 if all(result.met for result in results) else 1


def _print(case: str, best: Mapping[str, Figures]) -> None:
    print(f"{case:<28}{'tokens/s':>12}{'tokens/CPU s':>14}{'draftmill is':>16}  setting")
    ours = best["draftmill"].tokens_per_second
    for name, figures in best.items():
        speed, economy = figures.tokens_per_second, figures.tokens_per_cpu_second
        words = f"  {name:<26}{speed:>12,.0f}{economy:>14,.0f}{ours / speed:>15.2f}x"
        print(f"{words}  {figures.setting}", flush=True)
    print()


if __name__ == "__main__":
    sys.exit(main())
