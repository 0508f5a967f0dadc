"""The generator beside its rivals, on one core: `make bench-generator`.

Every client runs in a process of its own on a core of its own, one after another, against a server on another
core that gives every question the same answer. Where clients are compared they take turns for several rounds;
the best of each counts, or the median of the ratios. A line that is missed is run once more under a profiler,
which tells where its time goes.

small: 200-character prompts, 16-token answers, beside datatrove without and with its checkpoints.
kept: 8,192-token answers whose text the server sends with its think marks, so that it is kept.
decoded: the same, where the text lacks the marks and is decoded from the ids.
paced: 200 ms for each answer, beside a bare loop on aiohttp: how full the server is kept.
many: CPU of a request at a concurrency of 1,024 and 4,096 beside that at 200, at the same requests/s.
memory: the peak over a million prompts.
vllm: a real vLLM on the same cores, beside its own `vllm bench serve`.
"""

from __future__ import annotations

import json
import random
import statistics
import string
import sys
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "dev")]

from benchmarks.generator_processes import run_client  # noqa: E402
from benchmarks.generator_vllm import ROUNDS, vllm  # noqa: E402
from benchmarks.processes import cores  # noqa: E402
from benchmarks.results import Bench, Result, arguments, measure  # noqa: E402

from draftmill_jobs.model.tokenizer import Tokenizer  # noqa: E402
from tests.support.byte_tokenizer import make_byte_tokenizer  # noqa: E402
from tests.support.server_program import serving  # noqa: E402

CONCURRENCY = 200
SHORT, LONG = 16, 8192  # tokens of an answer
SERVICE = 0.2  # seconds of a paced answer
MANY = (CONCURRENCY, 1024, 4096)
STEADY = 4000  # requests per second that a server answers at each of these
VOCABULARY = 32_000
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
MILLION = 1_000_000


@dataclass(frozen=True)
class Figures:
    """What one client took for all its requests.

    Attributes:
        seconds: From its start, imports left out, to its end.
        seconds_after_preflight: The same from the moment when the first row may be asked.
        cpu: Seconds of its core.
        bytes: Peak of memory.
        served: Seconds from the first question to the last answer, by the server.
        server_cpu: Seconds of the server's core, its start included.
    """

    requests: int
    seconds: float
    seconds_after_preflight: float
    cpu: float
    system: float
    bytes: int
    served: float
    server_cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def cost(self) -> float:
        """Milliseconds of CPU for a request."""
        return 1000 * self.cpu / self.requests


@dataclass(frozen=True)
class Case:
    """A setting in which clients are measured."""

    folder: Path
    answer_tokens: int
    delay: float = 0.0
    shows_marks: bool = True
    engine: str = "VLLM"

    def run(self, client: str, requests: int, *, concurrency: int = CONCURRENCY) -> Figures:
        """Measures one client, against a server of its own."""
        prompts = self._prompts(requests)
        with self._serving() as url:
            took = json.loads(self._client(client, url, prompts, concurrency).splitlines()[-1])
            stat = _read(f"{url}/stat")
        assert stat["questions"] == requests, f"{client} sent {stat['questions']} of {requests} requests"
        assert stat["most_waiting"] <= concurrency
        return Figures(requests=requests, served=stat["seconds"], server_cpu=stat["cpu"], **took)

    def profile(self, requests: int) -> None:
        """Prints where the generator's time goes."""
        with self._serving() as url:
            print(self._client("draftmill", url, self._prompts(requests), CONCURRENCY, "--profile"))

    def _client(self, client: str, url: str, prompts: Path, concurrency: int, *flags: str) -> str:
        mine, _ = cores()
        count = len(list(self.folder.glob("client-*")))
        return run_client(
            client,
            f"--core={mine}",
            f"--url={url}",
            f"--engine={self.engine}",
            f"--model={self._model}",
            "--name=byte-level",
            f"--prompts={prompts}",
            f"--folder={self.folder / f'client-{count}'}",
            f"--concurrency={concurrency}",
            f"--tokens={2 * LONG}",
            *flags,
        )

    @property
    def _model(self) -> Path:
        return self.folder / "model"

    def _prompts(self, requests: int) -> Path:
        path = self.folder / f"prompts-{requests}.jsonl"
        if not path.exists():
            with path.open("w") as file:
                for number in range(requests):
                    file.write(json.dumps({"prompt": f"{number:08d}{' please' * 28}"[:200]}) + "\n")
        return path

    def _serving(self) -> AbstractContextManager[str]:
        answer = self.folder / "answer.json"
        if not answer.exists():
            answer.write_text(json.dumps(_answer_ids(_make_model(self._model), self.answer_tokens)))
        _, other = cores()
        return serving(
            [
                *("-P", str(REPOSITORY / "benchmarks/generator_server.py"), f"--core={other}"),
                *(f"--model={self._model}", "--name=byte-level"),
                *(f"--answer={answer}", f"--delay={self.delay}"),
                *(["--shows-marks"] if self.shows_marks else []),
            ]
        )


def small(folder: Path, scale: float) -> Result:
    """Requests per second, and how much more than the rival does."""
    case = Case(folder, SHORT)
    wanted = {
        "draftmill": _share(40_000, scale),
        "datatrove": _share(10_000, scale),
        "datatrove-checkpoints": _share(3_000, scale),
    }
    rounds = [{client: case.run(client, count) for client, count in wanted.items()} for _ in range(ROUNDS)]
    ours, plain, safe = (min((r[client] for r in rounds), key=lambda took: took.seconds) for client in wanted)
    met = ours.rate >= 4000 and ours.rate >= 2.5 * plain.rate and ours.rate >= 8 * safe.rate
    if not met:
        case.profile(_share(20_000, scale))
    return Result(
        "small",
        f"{ours.rate:,.0f} requests/s at {ours.cost:.3f} ms; {ours.rate / plain.rate:.1f} x datatrove "
        f"({plain.rate:,.0f}), {ours.rate / safe.rate:.1f} x with its checkpoints ({safe.rate:,.0f})",
        ">= 4,000, 2.5 x, 8 x",
        met,
    )


def kept(folder: Path, scale: float) -> Result:
    """Long records per CPU second where the server's text is kept."""
    return _long("kept", Case(folder, LONG), _share(6_000, scale), 1000)


def decoded(folder: Path, scale: float) -> Result:
    """Long records per CPU second where the text is decoded from the ids."""
    case = Case(folder, LONG, shows_marks=False, engine="SGLang")
    return _long("decoded", case, _share(4_000, scale), 450)


def _long(what: str, case: Case, requests: int, least: int) -> Result:
    took = case.run("draftmill", requests)
    records = requests / took.cpu
    if records < least:
        case.profile(requests // 4)
    return Result(
        what,
        f"{records:,.0f} records of {LONG:,} tokens per CPU second, {took.rate:,.0f} per second",
        f">= {least:,}",
        met=records >= least,
    )


def paced(folder: Path, scale: float) -> Result:
    """How full a server is kept, beside a loop that does nothing else."""
    case = Case(folder, SHORT, delay=SERVICE)
    requests = _share(5_000, scale)
    pairs = [
        [case.run(client, requests).served for client in ("aiohttp", "draftmill")] for _ in range(ROUNDS)
    ]
    ratio = statistics.median(bare / ours for bare, ours in pairs)
    bare, ours = (requests / min(side) for side in zip(*pairs, strict=True))
    if ratio < 0.97:
        case.profile(requests)
    return Result(
        "paced",
        f"{ratio:.3f} of a bare aiohttp loop: {ours:,.0f} of {bare:,.0f} requests/s where "
        f"{CONCURRENCY / SERVICE:,.0f} are possible",
        ">= 0.97",
        met=ratio >= 0.97,
    )


def many(folder: Path, scale: float) -> Result:
    """What a request costs when many are in flight, where the server answers as many in a second."""
    case, requests = Case(folder, SHORT), _share(40_000, scale)
    costs = dict[int, float]()
    for at_once in MANY:
        steady = replace(case, delay=at_once / STEADY)
        costs[at_once] = steady.run("draftmill", requests, concurrency=at_once).cost
    worst = max(costs.values()) / costs[CONCURRENCY]
    each = ", ".join(f"{cost:.3f} ms at {at_once:,}" for at_once, cost in costs.items())
    return Result("many", f"{worst:.2f} x: {each}, {STEADY:,} requests/s each", "<= 1.5 x", met=worst <= 1.5)


def memory(folder: Path, scale: float) -> Result:
    """The peak over a million prompts."""
    requests = _share(MILLION, scale)
    took = Case(folder, SHORT).run("draftmill", requests)
    return Result(
        "memory",
        f"{took.bytes / 1e6:,.0f} MB for {requests:,} prompts, all answered in {took.seconds:,.0f} s",
        "< 300 MB",
        met=took.bytes < 300e6,
    )


def _make_model(folder: Path) -> Tokenizer:
    """A folder that is a model's to the generator, with a tokenizer as large models have it."""
    rng = random.Random(0)
    words = ("".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 9))) for _ in range(VOCABULARY))
    tokenizer = make_byte_tokenizer(
        folder,
        marks_are_special=True,
        text=f"{' please' * 99} {' '.join(words)}",
        vocabulary=VOCABULARY,
        template=TEMPLATE,
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 1 << 20,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return tokenizer


def _answer_ids(tokenizer: Tokenizer, length: int) -> list[int | None]:
    """Words, the mark that ends thinking in the middle, and the stop token."""
    rng, half = random.Random(0), length // 2
    ids: list[int | None] = [*rng.choices(range(1000, VOCABULARY // 2), k=length)]
    ids[half], ids[-1] = tokenizer.token_id("</think>"), tokenizer.token_id("<|im_end|>")
    return ids


BENCHES: tuple[Bench, ...] = (small, kept, decoded, paced, many, memory, vllm)


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  an address of ours
        return json.load(answer)


def _share(count: int, scale: float) -> int:
    return max(2 * CONCURRENCY, round(count * scale))


def main() -> int:
    """Measures what is asked for; 1 when a figure is missed."""
    return measure(BENCHES, arguments(__doc__, BENCHES).parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
