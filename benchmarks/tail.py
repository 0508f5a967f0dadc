"""Places that stand idle while the last answers come: `make bench-tail`.

Three datasets on a played server with 128 places: 3,000 rows as long as the case study's (their running mean
rises from 266 tokens at the 10th to 1,263 at the 2,700th answer; at most 8,192), 3,000 of a third of that and
3,000 of a tenth, the longest named last. Prompts tell little of the answers' length. The order in which rows
are asked is the generator's own code, fed with what it would know at each moment.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from draftmill_api.record import RecordStatus  # noqa: E402
from draftmill_jobs.generate.order import LookAhead, Standing, urgency  # noqa: E402
from draftmill_jobs.generate.outlook import Course, DatasetOutlook, Outlook  # noqa: E402
from draftmill_jobs.generate.pace import Pace  # noqa: E402
from draftmill_jobs.shared.tally import Tally  # noqa: E402
from tests.support import case_study  # noqa: E402
from tests.support.played_server import Play, PlayedServer, batch  # noqa: E402

ROWS = 3000
MEDIANS = {"short": case_study.MEDIAN / 10, "middling": case_study.MEDIAN / 3, "long": case_study.MEDIAN}
SERVER = PlayedServer(case_study.CONCURRENCY, 700.0, batch(alone=5.0))
AHEAD = 256
SEEDS = range(3)
_LOOK = 30.0  # seconds between two looks at the lengths of answers; the generator looks every second


@dataclass
class Dataset:
    """Rows that are read ahead, and what is known of them."""

    tally: Tally
    outlook: DatasetOutlook
    coming: list[tuple[int, int]]
    ahead: LookAhead[int] = field(default_factory=LookAhead)

    def fill(self) -> None:
        while self.coming and len(self.ahead) < AHEAD:
            tokens, prompt = self.coming.pop()
            self.ahead.put(tokens, prompt)

    @property
    def standing(self) -> Standing:
        return Standing(self.tally.done + self.outlook.admitted, self.outlook.expected)


def datasets(rng: random.Random, outlook: Outlook) -> list[Dataset]:
    made = []
    for name, median in MEDIANS.items():
        rows = []
        for _ in range(ROWS):
            tokens = case_study.log_normal(rng, median, case_study.SPREAD)
            rows.append((tokens, round(1000 * rng.lognormvariate(0, 0.6) * (tokens / median) ** 0.3)))
        tally = Tally(name, ROWS)
        made.append(Dataset(tally, outlook.add(tally, case_study.LIMIT, None), rows))
    return made


def play(groups: list[list[Dataset]], outlook: Outlook, *, longest: bool) -> tuple[float, float]:
    """Seconds of the run and idle seconds of a place; each group begins when the one before has ended."""
    seconds = idle = 0.0
    for group in groups:
        seconds, idle = _play(group, outlook, longest=longest, began=seconds, idle=idle)
    return seconds, idle


def _play(
    group: list[Dataset], outlook: Outlook, *, longest: bool, began: float, idle: float
) -> tuple[float, float]:
    looked = began - 1.0

    def take() -> tuple[tuple[Dataset, Course], int] | None:
        for dataset in group:
            dataset.fill()
        ready = [dataset for dataset in group if dataset.ahead]
        if not ready:
            return None
        chosen = max(ready, key=lambda each: urgency(each.standing)) if longest else ready[0]
        tokens = chosen.ahead.take(longest=longest)
        return (chosen, chosen.outlook.admit(prompt=0)), tokens

    def sent(row: tuple[Dataset, Course], now: float) -> None:
        row[1].sent = now

    def ended(row: tuple[Dataset, Course], now: float, tokens: int) -> None:
        nonlocal looked
        dataset, course = row
        course.answer(tokens, now)
        dataset.tally.add_record(RecordStatus.OK, "stop", tokens)
        course.settled(now)
        if now - looked > _LOOK:
            looked = now
            outlook.sample(now)

    played = Play[tuple[Dataset, Course]](SERVER, take, sent, ended, now=began, idle=idle)
    played.run([], lambda _: None)
    return played.now, played.idle


POLICIES: dict[str, Callable[[list[Dataset], Outlook], tuple[float, float]]] = {
    "one dataset after another": lambda each, outlook: play([[one] for one in each], outlook, longest=False),
    "one pool, in the order of the spec": lambda each, outlook: play([each], outlook, longest=False),
    "one pool, long ones first (ours)": lambda each, outlook: play([each], outlook, longest=True),
}


def main() -> int:
    """Prints a table; 1 when the generator's order leaves more than half as much idle as the first line's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    chosen = parser.parse_args()
    print(f"{'order':<38}{'hours':>8}{'idle, place hours':>20}{'of all':>9}{'beside the first':>19}")
    figures = []
    for name, policy in POLICIES.items():
        seconds = idle = 0.0
        for seed in SEEDS:
            outlook = Outlook(Pace())
            took, stood = policy(datasets(random.Random(seed), outlook), outlook)
            seconds, idle = seconds + took / len(SEEDS), idle + stood / len(SEEDS)
        share = idle / (seconds * SERVER.places)
        figures.append({"order": name, "hours": seconds / 3600, "idle": idle / 3600, "share": share})
        beside = idle / 3600 / figures[0]["idle"]
        print(f"{name:<38}{seconds / 3600:>8.2f}{idle / 3600:>20.1f}{share:>9.1%}{beside:>19.2f}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2))
    return 0 if figures[-1]["idle"] <= 0.5 * figures[0]["idle"] else 1


if __name__ == "__main__":
    sys.exit(main())
