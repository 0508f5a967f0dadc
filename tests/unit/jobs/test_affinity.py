"""Prompts that begin alike go to one server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from draftmill_jobs.engines.client import open_session
from draftmill_jobs.generate import asking
from draftmill_jobs.generate.affinity import LONGEST, SHORTEST, may_have_more, preferred, prefix_of
from draftmill_jobs.generate.endpoints import EndpointPool, EndpointState
from draftmill_jobs.prompts.shapes import Prompt
from tests.support.endpoints import an_endpoint
from tests.support.engine_server import EngineServer, Reaction, Reply, Request, Script
from tests.support.job import Job

LONG = "a" * LONGEST
TOOL = {"type": "function", "function": {"name": "look", "description": "d" * SHORTEST}}
PREFIXES = [number.to_bytes(8) for number in range(4000)]


def said(*contents: str, system: str = "", tools: list[dict[str, Any]] | None = None) -> Prompt:
    """A conversation whose first turn is the user's."""
    messages = [{"role": "system", "content": system}] if system else []
    for place, content in enumerate(contents):
        messages.append({"role": ("user", "assistant")[place % 2], "content": content})
    return Prompt(messages, tools)


HALF = "h" * SHORTEST
PARTS = [{"type": "text", "text": HALF}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(said("x", system=LONG), said("y", system=LONG), id="one long system prompt"),
        pytest.param(said(LONG + "x"), said(LONG + "y"), id="one document, two questions about it"),
        pytest.param(said(HALF), said(HALF, "answer", "further"), id="two turns of a conversation"),
        pytest.param(said("x", tools=[TOOL] * 4), said("y", tools=[TOOL] * 4), id="the same tools"),
    ],
)
def test_prompts_that_begin_alike_have_one_prefix(one: Prompt, other: Prompt) -> None:
    assert prefix_of(one, {}) is not None
    assert prefix_of(one, {}) == prefix_of(other, {})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(said("x" + LONG), said("y" + LONG), id="another first character"),
        pytest.param(said(HALF + "x"), said(HALF + "y"), id="another question after little"),
        pytest.param(said(LONG, system="x"), said(LONG, system="y"), id="another system prompt"),
        pytest.param(said(HALF, tools=[TOOL]), said(HALF), id="tools or none"),
        pytest.param(Prompt([{"role": "user", "content": PARTS}], None), said(HALF), id="content in parts"),
    ],
)
def test_prompts_that_begin_otherwise_have_another_prefix(one: Prompt, other: Prompt) -> None:
    assert prefix_of(one, {}) != prefix_of(other, {})


def test_the_arguments_of_the_template_are_part_of_the_beginning() -> None:
    assert prefix_of(said(LONG), {"enable_thinking": True}) != prefix_of(said(LONG), {})
    assert prefix_of(said(LONG), {"a": 1, "b": 2}) == prefix_of(said(LONG), {"b": 2, "a": 1})


def test_a_short_beginning_does_not_matter() -> None:
    assert prefix_of(said("x" * (SHORTEST - 1), "answer" * 100, "further" * 100), {}) is None
    assert prefix_of(said("x" * SHORTEST), {}) is not None


def test_each_server_has_its_share_of_the_prefixes() -> None:
    shares = Counter(preferred(prefix, ["s0", "s1", "s2", "s3"]) for prefix in PREFIXES)
    assert all(900 < count < 1100 for count in shares.values()), shares


def test_a_server_that_comes_or_goes_moves_only_its_own_share() -> None:
    three, four = ["s0", "s1", "s2"], ["s3", "s1", "s0", "s2"]
    moved = [prefix for prefix in PREFIXES if preferred(prefix, three) != preferred(prefix, four)]
    assert {preferred(prefix, four) for prefix in moved} == {"s3"}
    assert 900 < len(moved) < 1100


@pytest.mark.parametrize(
    ("load", "loads", "expected"),
    [
        pytest.param(0, [0, 0, 0], True, id="nothing is in flight"),
        pytest.param(1, [1, 0, 0], False, id="the others have nothing"),
        pytest.param(1, [1, 1, 1], True, id="each has one"),
        pytest.param(35, [35, 31, 31, 31], True, id="an eighth above the mean, with this one"),
        pytest.param(37, [37, 31, 31, 31], False, id="more than an eighth above the mean"),
    ],
)
def test_the_preferred_server_may_have_little_more_than_its_part(
    load: int, loads: list[int], expected: bool
) -> None:
    assert may_have_more(load, loads) is expected


async def a_pool(*names: str) -> EndpointPool:
    """Servers that are up."""
    async with open_session() as session:
        pool = EndpointPool(session, lambda: 0.0, lambda: 1.0)
    for name in names:
        pool.add(an_endpoint(name))
        pool.mark(pool.endpoints[name], EndpointState.UP)
    return pool


def take(pool: EndpointPool, prefix: bytes) -> str:
    """Sends a row with this prefix."""
    endpoint = pool.choose(prefix=prefix)
    assert endpoint is not None
    endpoint.gate.take()
    return endpoint.spec.name


async def test_a_hot_prefix_overloads_no_server() -> None:
    pool = await a_pool("s0", "s1", "s2", "s3")
    for _ in range(400):
        take(pool, b"hot")
    loads = sorted(endpoint.load for endpoint in pool.endpoints.values())
    assert loads[-1] == 113, "an eighth above the mean"
    assert loads[0] >= 95


async def test_of_many_prefixes_nearly_all_go_where_they_are_preferred() -> None:
    pool = await a_pool("s0", "s1", "s2", "s3")
    names = list(pool.endpoints)
    sent = [take(pool, prefix) == preferred(prefix, names) for prefix in PREFIXES[:1000]]
    assert sum(sent) > 900


async def test_a_prefix_goes_elsewhere_while_its_server_is_down_full_or_to_be_avoided() -> None:
    pool = await a_pool("s0", "s1", "s2")
    warm = pool.choose(prefix=b"p")
    assert warm is not None
    assert pool.choose(avoid=warm, prefix=b"p") not in {warm, None}
    warm.gate.set_cap(0)
    assert pool.choose(prefix=b"p") not in {warm, None}
    warm.gate.set_cap(None)
    pool.mark(warm, EndpointState.STARTING)
    assert pool.choose(prefix=b"p") not in {warm, None}
    pool.mark(warm, EndpointState.UP)
    assert pool.choose(prefix=b"p") is warm


def documents(count: int, questions: int) -> list[dict[str, str]]:
    """Rows that ask some questions of each of some documents."""
    return [
        {"prompt": f"w{document} " * LONGEST + f"w{question}"}
        for question in range(questions)
        for document in range(10, 10 + count)
    ]


async def test_all_questions_about_a_document_go_to_one_of_two_servers(
    job: Job, server: EngineServer
) -> None:
    asked: list[tuple[str, str]] = []

    def noting(url: str) -> Script:
        def script(request: Request) -> Reaction:
            if not request.is_preflight:
                asked.append((url, request.payload["messages"][0]["content"].split()[0]))
            return Reply(delay=0.02)

        return script

    job.datasets, job.generation = {"A": documents(6, questions=5)}, {"concurrency": 1}
    async with EngineServer(job.model) as other:
        for each in (server, other):
            each.script = noting(each.url)
        _, progress = await job.use(server, other).generate()
    assert progress.ok == 30
    both_up = next(place for place, (url, _) in enumerate(asked) if url != asked[0][0])
    pairs = set(asked[both_up:])
    assert len(pairs) == len({document for _, document in pairs}), "each document has one server"
    assert len({url for url, _ in pairs}) == 2


async def test_with_one_server_no_prompt_is_hashed(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(asking, "prefix_of")
    job.datasets = {"A": documents(1, questions=5)}
    _, progress = await job.use(server).generate()
    assert progress.ok == 5
