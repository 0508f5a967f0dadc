"""Extractor and server as processes, killed at random instants until every row is stored."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Protocol

from draftmill_api.exitcode import ExitCode
from draftmill_api.store import JournalLine, StoreLine
from draftmill_jobs.store import audit_store
from draftmill_jobs.store.lines import read_lines
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.killing_worker import Forked, ForkedWorker, Program, ProgramWorker, Running
from tests.support.ports import free_port
from tests.support.states_program import main as serve_states
from tests.support.states_server import assert_states, ids_of
from tests.support.waiting import quiet_for, until

_ROWS = 600
_LAYERS = [1, 2]
_STATES = len(_LAYERS) + 1
_IN_FLIGHT = 800  # tokens, of some forty rows
_START = 60.0  # seconds within which new rows are asked for
_LONGEST_WAIT = 0.3  # seconds from a sign of progress to the blow
_END = 300.0  # seconds within which all is done when nothing is killed any more


class Part(Enum):
    """What is killed."""

    EXTRACTOR = "extractor"
    SERVER = "server"


class Cast(Protocol):
    """A way to start both."""

    def extractor(self, config: Path) -> Running:
        """Starts the extractor."""
        ...

    def server(self, arguments: Sequence[str]) -> Running:
        """Starts the server."""
        ...


class Programs:
    """Both as a user starts them."""

    def extractor(self, config: Path) -> Running:
        """Starts `python -m draftmill_jobs extract`."""
        return ProgramWorker("extract").start(config)

    def server(self, arguments: Sequence[str]) -> Running:
        """Starts the stand-in's program."""
        return Program([sys.executable, "-m", "tests.support.states_program", *arguments])


class Forks:
    """The same code, forked from a process that has imported everything already."""

    def extractor(self, config: Path) -> Running:
        """Forks an extractor."""
        return ForkedWorker("extract").start(config)

    def server(self, arguments: Sequence[str]) -> Running:
        """Forks a server."""
        return Forked(serve_states, tuple(arguments))


def extract_through_kills(folder: Path, cast: Cast, *, kills: int, seed: int) -> None:
    """Every row is stored once, with its own states; none that was durable is ever asked for again."""
    stage = _Stage(folder, cast)
    rng = random.Random(seed)
    blows = [Part.EXTRACTOR, Part.SERVER] * (kills // 2)
    rng.shuffle(blows)
    with stage.playing():
        for number, part in enumerate(blows):
            stage.kill(part, rng, at_work=number % 4 != 3)
        assert stage.running[Part.EXTRACTOR].code(_END) == ExitCode.DONE
    stage.assert_stored_once()


class _Stage:
    """The processes, what they work on, and what is known of it."""

    def __init__(self, folder: Path, cast: Cast) -> None:
        model = make_headed_model(folder / "model")
        self._staging, self._asked = folder / "staging", folder / "asked.jsonl"
        self._asked.touch()
        port = free_port()
        self._job = ExtractJob(folder / "job", model, run={"uid": "killed"}).add_many(_ROWS)
        self._job.fields |= {
            "backend": "VLLM",
            "layers": {"ids": _LAYERS},
            "staging": str(self._staging),
            "inFlightTokens": _IN_FLIGHT,
            "shardSize": "2Mi",
            "endpoints": [{"name": "s0", "url": f"http://127.0.0.1:{port}", "engine": "VLLM"}],
        }
        config = self._job.write()
        places = {"model": model, "staging": self._staging, "port": port, "asked": self._asked}
        arguments = [*(f"--{name}={value}" for name, value in places.items()), "--late"]
        self._start: dict[Part, Callable[[], Running]] = {
            Part.EXTRACTOR: lambda: cast.extractor(config),
            Part.SERVER: lambda: cast.server(arguments),
        }
        self.running: dict[Part, Running] = {}
        self._durable: list[tuple[int, set[str]]] = []

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Both run while the block does, and neither after it."""
        try:
            for part, start in self._start.items():
                self.running[part] = start()
            yield
        finally:
            for running in self.running.values():
                running.kill()

    def kill(self, part: Part, rng: random.Random, *, at_work: bool) -> None:
        """Kills one of them, a random time after new rows were asked for or after the last blow."""
        if at_work:
            wanted = len(self._rows_asked()) + rng.randint(1, 30)
            until(lambda: len(self._rows_asked()) >= wanted, _START, "new rows are asked for")
        quiet_for(rng.uniform(0, _LONGEST_WAIT))
        assert self.running[Part.EXTRACTOR].code(0) is None, "nothing is left to do"
        self.running[part].kill()
        if part is Part.EXTRACTOR:
            self._durable.append((len(self._rows_asked()), self._rows_on_disk()))
        self.running[part] = self._start[part]()

    def assert_stored_once(self) -> None:
        """Looks at the store, and at what was asked for after each death of the extractor."""
        assert_states(self._job, states=_STATES)
        assert audit_store(self._job.output).faults == []
        asked = self._rows_asked()
        for since, durable in self._durable:
            assert durable.isdisjoint(asked[since:]), "a durable row was asked for again"
        assert list(self._staging.iterdir()) == []

    def _rows_asked(self) -> list[str]:
        """Token ids of each request, in their order; a server may have died in the middle of a line."""
        return [line for line in self._asked.read_text().splitlines() if line.endswith("]")]

    def _rows_on_disk(self) -> set[str]:
        """Token ids of the rows that are durable."""
        output = self._job.output
        lines = [line for path in output.glob("index-*") for line in read_lines(path, StoreLine).values]
        journals = output.glob("*.journal")
        lines += [line.row for path in journals for line in read_lines(path, JournalLine).values]
        ids = {record["id"]: ids_of(record) for record in self._job.records}
        return {json.dumps(ids[line.id]) for line in lines}
