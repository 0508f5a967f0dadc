"""Makes the demo's prompts with reasoning-gym: one JSON line for each, with `messages`.

Run by the model server's Python: `python make_prompts.py FOLDER ROWS`.
"""

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path

# Imported by tasks that are not used here, and only to be had as C sources.
for absent in ("cellpylib", "pycosat", "zss"):
    sys.modules[absent] = types.ModuleType(absent)

import reasoning_gym  # noqa: E402

TASKS = {"B1_arithmetic": "gsm_symbolic", "B2_logic": "syllogism"}
SEED = 20


def main(folder: Path, rows: int) -> None:
    """Writes `<dataset>.jsonl` for each of `TASKS`, with that many different prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    for dataset, task in TASKS.items():
        questions = _distinct(task, rows)
        lines = [json.dumps({"messages": [{"role": "user", "content": question}]}) for question in questions]
        (folder / f"{dataset}.jsonl").write_text("\n".join(lines) + "\n")


def _distinct(task: str, rows: int) -> list[str]:
    questions: dict[str, None] = {}
    for question in _questions(task, rows):
        questions[question] = None
        if len(questions) == rows:
            return list(questions)
    raise SystemExit(f"{task} gave only {len(questions)} different questions, {rows} are wanted")


def _questions(task: str, rows: int) -> Iterator[str]:
    for entry in reasoning_gym.create_dataset(task, seed=SEED, size=10 * rows):
        yield entry["question"].strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
