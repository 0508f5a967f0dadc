"""A status has the ten most frequent reasons, each with a row and a remedy: at work and at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from draftmill_api.names import TERMINATION_MESSAGE_CUT
from draftmill_api.progress import Progress, TerminationMessage, WorkerState
from draftmill_api.v1alpha1.status import Failure
from draftmill_jobs.engines.remedies import REMEDIES
from draftmill_jobs.generate import tries
from draftmill_jobs.shared.termination import encode
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Situation
from draftmill_operator.observe.types import JobState, Observed
from draftmill_operator.status.summarise import summarise
from tests.support.engine_server import Cut, EngineServer, Fail, Hold, Reaction, Reply, Request
from tests.support.job import Job
from tests.support.job_pages import progress_when
from tests.support.played import finish_message
from tests.support.ports import free_port
from tests.unit.operator import builders

LONG = b'{"error":{"message":"' + b"a long story, " * 30 + b'"}}'


def abort(body: dict[str, Any]) -> None:
    body["choices"][0]["finish_reason"] = "abort"


def miscount(body: dict[str, Any]) -> None:
    body["usage"]["completion_tokens"] += 1


REACTIONS: Mapping[str, Reaction] = {
    "bad_request": Fail(400, LONG),
    "context_overflow": Fail(413, LONG),
    "overloaded": Fail(429, LONG),
    "proxy_timeout": Fail(504, LONG),
    "server_error": Fail(500, LONG),
    "try_again": Fail(408, LONG),
    "invalid_response": Fail(200, b"<html>login</html>"),
    "connection_lost": Cut(),
    "aborted": Reply(edit=abort),
    "count_mismatch": Reply(edit=miscount),
    "held": Hold(),
}
ROWS: Mapping[str, Mapping[str, int]] = {
    "A": {
        "bad_request": 3,
        "context_overflow": 3,
        "overloaded": 3,
        "proxy_timeout": 3,
        "unusable_row": 3,
        "server_error": 2,
    },
    "B": {
        "try_again": 3,
        "invalid_response": 3,
        "connection_lost": 3,
        "aborted": 3,
        "server_error": 2,
        "count_mismatch": 1,
    },
}
"""Rows of each dataset that fail for each reason; `server_error` is the most frequent and the sixth in A."""
EXPECTED = {"server_error": 4} | {
    reason: count for rows in ROWS.values() for reason, count in rows.items() if count == 3
}


def rows_that_fail(reasons: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows whose first word is the reason for which they fail."""
    return [
        {"nothing" if reason == "unusable_row" else "prompt": f"{reason} {number}"}
        for reason, count in reasons.items()
        for number in range(count)
    ]


def script(request: Request) -> Reaction:
    return REACTIONS[request.payload["messages"][0]["content"].split()[0]]


def at_work(seen: Progress) -> Situation:
    """What the operator sees while the one worker of a run says this."""
    workers = (builders.job(builders.pod(), attempt=1),)
    observed = Observed(workers=workers, servers=builders.READY, progress={0: seen})
    return builders.situation(builders.doing(count=1), observed)


def at_its_end(message: TerminationMessage, recorded: Sequence[Failure]) -> Situation:
    """What it sees when the finish of such a run has left these last words."""
    finish = builders.job(builders.ended_pod(0, message), state=JobState.SUCCEEDED)
    status = builders.doing(count=1, succeeded=True).model_copy(update={"failures": list(recorded)})
    datasets = [{"name": name, "source": {"file": {"path": f"{name}.jsonl"}}} for name in ROWS]
    return builders.situation(status, Observed(finish=finish), datasets=datasets)


def failures_after(where: Situation) -> list[Failure]:
    return summarise(where, decide(where)).failures


async def test_the_ten_most_frequent_of_eleven_reasons_in_two_datasets_are_in_the_status(
    job: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "_EXCUSES", 0)
    server.script = script
    job.datasets = {name: rows_that_fail(reasons) for name, reasons in ROWS.items()}
    job.datasets["B"].append({"prompt": "held"})
    job.generation = {"retries": 0, "errorPolicy": {"pausePercent": 100}}
    port, failed = free_port(), sum(sum(reasons.values()) for reasons in ROWS.values())
    async with job.use(server).generating(port) as task:
        seen = await progress_when(
            port, lambda seen: seen.progress.errors == failed and seen.state is WorkerState.RUNNING
        )
        server.let_go()
        await task
    last_words = TerminationMessage.model_validate_json(encode(TerminationMessage(finish=job.finish())))

    live = failures_after(at_work(seen))
    ended = failures_after(at_its_end(last_words, recorded=live))

    assert len(seen.failures) == 11, "a worker tells of all: others may have more of what is rare in it"
    rows = {letter["id"]: letter["reason"] for name in ROWS for letter in job.lines("dead_letter", name)}
    for shown in (live, ended):
        assert {failure.reason: failure.count for failure in shown} == EXPECTED
        assert shown[0].reason == "server_error", "the most frequent one comes first"
        assert all(rows[failure.id] == failure.reason for failure in shown)
        assert all(failure.remedy == REMEDIES[failure.reason] for failure in shown)
    assert last_words.finish is not None
    assert any(failure.message.endswith(TERMINATION_MESSAGE_CUT) for failure in last_words.finish.failures)
    assert {each.reason: each.message for each in ended if each.reason != "server_error"} == {
        each.reason: each.message for each in live if each.reason != "server_error"
    }, "what the last words had no room for was recorded before; of server_error each may name another row"


def test_what_the_last_words_lack_comes_from_what_was_recorded_of_the_same_reason_and_row() -> None:
    recorded = [
        Failure(
            reason="stalled", count=1, id="a", message="said nothing for 600 s", remedy="look in the log"
        ),
        Failure(reason="aborted", count=2, id="b", message="gave up", remedy="lower it"),
    ]
    counted = [
        Failure(reason="stalled", count=7, id="a", message="said noth…"),
        Failure(reason="aborted", count=5, id="c", message="was given…"),
        Failure(reason="connect", count=3, id="d", message="no conn…"),
    ]
    message = finished(counted)

    first = failures_after(at_its_end(message, recorded))

    assert first == [
        Failure(
            reason="stalled", count=7, id="a", message="said nothing for 600 s", remedy="look in the log"
        ),
        Failure(reason="aborted", count=5, id="c", message="was given…", remedy="lower it"),
        Failure(reason="connect", count=3, id="d", message="no conn…"),
    ]
    assert failures_after(at_its_end(message, first)) == first, "the next pass writes nothing"


def finished(failures: Sequence[Failure]) -> TerminationMessage:
    """The last words of a finish that counted these."""
    message = finish_message(0, 0)
    assert message.finish is not None
    return TerminationMessage(finish=message.finish.model_copy(update={"failures": list(failures)}))
