"""The store of hidden states against the disk and the memory that it stands on: `make bench-extract`.

packer: staged files to shards, with checks, hashes and fsync, against a sequential write of as many bytes to
the same disk, with one fsync. reader: rows in random order to a buffer, against a memcpy of the same mapped
pages. memory: the writer's peak, of few and of many rows. What is compared is measured in turn, pair by pair,
and the median of the pairs counts, for a disk is rarely as fast twice.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY)]

from benchmarks.results import Bench, Result, arguments, measure  # noqa: E402

from draftmill_api.store import ComputedIn, RowFacts, StoreBinding  # noqa: E402
from draftmill_api.v1alpha1.extractrun import StateDtype  # noqa: E402
from draftmill_jobs.shared.settings import Share  # noqa: E402
from draftmill_jobs.store import Check, Store, StoreRow, StoreWriter  # noqa: E402
from draftmill_jobs.store.mapping import read_places  # noqa: E402
from draftmill_jobs.store.tensors import TensorPlace, render_header  # noqa: E402
from tests.support.memory import peak_memory  # noqa: E402
from tests.support.states import RUN, row  # noqa: E402

PAIRS = 5
FAST_DISK = 500e6  # bytes per second from which the packer has a figure of its own to meet
SHARD_BYTES = 1 << 30
KIMI = (1400, 4, 7168)  # tokens, states, width: the rows that the size of a run is planned by
SMALL = (300, 4, 576)
FEW, MANY = 10_000, 100_000


def packer(folder: Path, scale: float) -> Result:
    """Staged files to shards against the disk itself."""
    count = max(2, round(24 * scale))
    with _memory_folder(folder) as staging:
        staged = [_stage(staging / f"{number}.safetensors", number) for number in range(min(count, 6))]
        size = staged[0].stat().st_size * count
        pairs: list[tuple[float, float]] = []
        for pair in range(PAIRS):
            plain, store = folder / "plain", folder / f"store-{pair}"
            disk = size / _seconds(lambda plain=plain: _write_plainly(plain, size))
            ours = size / _seconds(lambda store=store: _pack(store, staged, count))
            pairs.append((ours, disk))
            plain.unlink()
            shutil.rmtree(store)
    ours, disk = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(ours / disk for ours, disk in pairs)
    return Result(
        "packer",
        f"{ratio:.2f} of the disk: {ours / 1e6:,.0f} of {disk / 1e6:,.0f} MB/s",
        ">= 0.8" if disk <= FAST_DISK else ">= 400 MB/s",
        met=ratio >= 0.8 if disk <= FAST_DISK else ours >= 400e6,
    )


def reader(folder: Path, scale: float) -> Result:
    """Rows in random order, all in the page cache, against a memcpy of the same bytes, both by one thread."""
    import torch  # noqa: PLC0415 - the writer, whose memory is measured, does without

    torch.set_num_threads(1)
    count, (tokens, states, width) = max(16, round(600 * scale)), SMALL
    binding = _binding(states, width)
    with _writer(folder / "reader", binding) as store:
        for number in range(count):
            store.append(_row(number, tokens, states, width), _nothing)
        store.seal()
    order = np.random.default_rng(0).permutation(count).tolist()
    buffer = torch.empty(tokens, states, width, dtype=torch.bfloat16)
    with Store.open(folder / "reader", check=Check.HASHES) as opened:
        places = [(opened[index]._memory, opened.lines[index].offset) for index in order]
        size = buffer.nbytes
        into = buffer.view(torch.uint8).numpy().reshape(-1)
        pages = [np.ndarray((size,), np.uint8, memory, offset) for memory, offset in places]

        def copy() -> None:
            for page in pages:
                np.copyto(into, page)

        def read() -> None:
            for each in opened.in_order(order):
                buffer.copy_(each.states())

        copy()
        pairs = [(size * count / _seconds(read), size * count / _seconds(copy)) for _ in range(PAIRS)]
    ratio = statistics.median(ours / plain for ours, plain in pairs)
    ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(
        "reader",
        f"{ratio:.2f} of a memcpy: {ours / 1e9:.1f} of {plain / 1e9:.1f} GB/s",
        ">= 0.8",
        met=ratio >= 0.8,
    )


def memory(folder: Path, scale: float) -> Result:
    """The writer's peak of few and of many rows, each in a process of its own."""
    peaks = []
    for count in (round(FEW * scale), round(MANY * scale)):
        command = [sys.executable, __file__, "--fill", str(folder / f"memory-{count}"), "--rows", str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        peaks.append((count, int(done.stdout)))
    return Result(
        "memory",
        ", ".join(f"{peak / 1e6:.0f} MB for {count:,} rows" for count, peak in peaks),
        "< 500 MB",
        met=all(peak < 500e6 for _, peak in peaks),
    )


BENCHES: tuple[Bench, ...] = (packer, reader, memory)


def fill(folder: Path, count: int) -> None:
    """Writes many small rows, opens the store again, and prints the peak of memory in bytes."""
    tokens, states, width = 8, 4, 32
    binding = _binding(states, width)
    with _writer(folder, binding) as store:
        for number in range(count):
            store.append(_row(number, tokens, states, width), _nothing)
    with _writer(folder, binding) as store:
        assert store.holds(row(count - 1, tokens).facts.key, row(count - 1, tokens).token_ids)
        store.seal()
    print(peak_memory())


def _pack(folder: Path, staged: list[Path], count: int) -> None:
    tokens, states, width = KIMI

    def append(number: int) -> None:
        path = staged[number % len(staged)]
        places = read_places(path)
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        ids = np.ndarray((tokens,), np.int64, memory, places["token_ids"].begin).astype(np.int32)
        values = np.ndarray((tokens, states, width), np.uint16, memory, places["hidden_states"].begin)
        store.append(
            StoreRow(_facts(number), ids, np.ones(tokens, np.uint8), values, ids, ComputedIn.BFLOAT16),
            _nothing,
        )

    with _writer(folder, _binding(states, width)) as store:
        with ThreadPoolExecutor(2) as threads:
            for _ in threads.map(append, range(count)):
                pass
        store.seal()


def _stage(path: Path, number: int) -> Path:
    """A file as a server stages it."""
    tokens, states, width = KIMI
    rng, start = np.random.default_rng(number), 512
    values = rng.integers(1, 0x7F00, (tokens, states, width), dtype=np.uint16)
    ids = rng.integers(0, 163_840, tokens, dtype=np.int64)
    between, end = start + values.nbytes, start + values.nbytes + ids.nbytes
    places = {
        "hidden_states": TensorPlace("BF16", values.shape, start, between),
        "token_ids": TensorPlace("I64", ids.shape, between, end),
    }
    path.write_bytes(render_header(places, {}, start) + values.tobytes() + ids.tobytes())
    return path


def _write_plainly(path: Path, size: int) -> None:
    """What the disk takes when nothing else is done."""
    block = np.random.default_rng(0).bytes(8 << 20)
    with path.open("wb", buffering=0) as file:
        while size > 0:
            size -= file.write(block[:size])
        os.fsync(file.fileno())


def _row(number: int, tokens: int, states: int, width: int) -> StoreRow:
    rng = np.random.default_rng(number)
    values = rng.integers(1, 0x7F00, (tokens, states, width), dtype=np.uint16)
    return replace(row(number, tokens), states=values)


def _facts(number: int) -> RowFacts:
    return row(number, 3).facts


def _binding(states: int, width: int) -> StoreBinding:
    ids = list(range(2, 2 + states))
    return StoreBinding(
        model_fingerprint="f" * 64, layer_ids=ids, hidden_size=width, dtype=StateDtype.BFLOAT16
    )


def _writer(folder: Path, binding: StoreBinding) -> StoreWriter:
    return StoreWriter(folder, binding, shard_bytes=SHARD_BYTES, run=RUN, share=Share(0, 1))


@contextmanager
def _memory_folder(otherwise: Path) -> Iterator[Path]:
    """Where a server stages: memory, if this machine has such a folder."""
    shared = Path("/dev/shm")  # noqa: S108 - it is the point
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else otherwise) as folder:
        yield Path(folder)


def _seconds(act: Callable[[], None]) -> float:
    os.sync()
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _nothing() -> None:
    """Nobody waits."""


def main() -> int:
    """Measures and prints a table; 1 when a figure is missed."""
    parser = arguments(__doc__, BENCHES)
    parser.add_argument(
        "--folder", type=Path, help="on the disk to measure; the default's for temporary files"
    )
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.fill:
        fill(chosen.fill, chosen.rows)
        return 0
    return measure(BENCHES, chosen, chosen.folder)


if __name__ == "__main__":
    sys.exit(main())
