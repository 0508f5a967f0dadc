"""The finish: the second look at the files, and what it writes and refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_api.manifest import Manifest, Summary
from draftmill_api.names import TERMINATION_MESSAGE_LIMIT
from draftmill_api.progress import COUNT_FIELDS, Refusal, TerminationMessage
from draftmill_api.v1alpha1.status import ChosenConcurrency
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.finish.auditing import audit_folder
from draftmill_jobs.shared.chosen_concurrency import note_chosen
from draftmill_jobs.shared.termination import encode
from tests.support.engine_server import EngineServer, Fail, Reply
from tests.support.job import Job, prompts


async def test_summary_and_manifest_say_what_is_there(job: Job, server: EngineServer) -> None:
    job.datasets = {"A": [*prompts(20), *prompts(3)], "B": prompts(10, start=100)}
    refused = prompts(1)[0]["prompt"]
    server.script = lambda request: (
        Fail(400) if request.payload["messages"][0]["content"] == refused else Reply()
    )
    await job.use(server).generate()
    result = job.finish()
    assert [counts[COUNT_FIELDS.index("done")] for counts in result.dataset_counts] == [19, 10]
    assert (result.progress.ok, result.progress.errors, result.progress.skipped) == (29, 1, 3)
    assert [(failure.reason, failure.count) for failure in result.failures] == [("bad_request", 1)]
    summary = Summary.model_validate_json((job.output / "summary.json").read_bytes())
    assert summary.accounted
    assert summary.statuses == {"ok": 29}
    assert summary.dead_letter_reasons == {"bad_request": 1}
    content = (job.output / "manifest.json").read_bytes()
    assert result.manifest_sha256 == hashlib.sha256(content).hexdigest()
    manifest = Manifest.model_validate_json(content)
    assert (manifest.records, manifest.completion_tokens, manifest.strangers) == (29, 29 * 16, 0)
    for dataset in manifest.datasets:
        for file in [*dataset.files, *dataset.dead_letters]:
            data = (job.output / file.path).read_bytes()
            assert (file.bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            assert file.records == data.count(b"\n")
    assert job.finish().manifest_sha256 == result.manifest_sha256, "finishing twice changes nothing"


async def test_the_summary_says_that_the_rows_which_failed_are_the_long_ones(
    job: Job, server: EngineServer
) -> None:
    """From the files, whichever attempts of workers wrote them."""
    long = [{"prompt": f"w{i} " * 100} for i in range(12)]
    job.datasets = {"A": [*prompts(20), *long[:6]]}
    server.script = lambda request: Fail(400) if len(request.prompt_ids) > 100 else Reply()
    await job.use(server).generate()
    job.datasets = {"A": [*prompts(20), *long, {"no": "prompt"}]}
    await job.generate()
    job.finish()
    (found,) = Summary.model_validate_json((job.output / "summary.json").read_bytes()).length_bias
    assert (found.name, found.answered.rows, found.failed.rows) == ("A", 20, 12)
    assert found.answered.mean_tokens == 16
    assert found.failed.mean_prompt_bytes > 5 * found.answered.mean_prompt_bytes
    assert "of 32 rows 12 failed, and those have the long prompts" in found.warning


async def test_dead_letters_of_before_they_told_what_was_expected_are_counted(
    job: Job, server: EngineServer
) -> None:
    server.script = lambda _: Fail(400)
    job.datasets = {"A": prompts(3)}
    await job.use(server).generate()
    path = job.output / "A" / "dead_letter.jsonl"
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    for letter in letters:
        del letter["expected_tokens"], letter["prompt_bytes"]
    path.write_text("".join(json.dumps(letter) + "\n" for letter in letters))
    assert job.finish().progress.errors == 3
    (found,) = Summary.model_validate_json((job.output / "summary.json").read_bytes()).length_bias
    assert (found.failed.rows, found.warning) == (0, "")


async def test_the_summary_says_what_auto_settled_on_and_why(job: Job, server: EngineServer) -> None:
    job.generation = {"concurrency": "Auto"}
    await job.use(server).generate()
    assert job.finish().progress.concurrency is None, "the run was over before"
    found = ChosenConcurrency(in_force=18, settled=True, reason="18 in flight gave 900 tokens/s")
    note_chosen(job.output, found)
    job.finish()
    summary = Summary.model_validate_json((job.output / "summary.json").read_bytes())
    assert summary.progress.concurrency == found
    job.generation = {"concurrency": 4}
    assert job.finish().progress.concurrency is None, "it was left for a number"


async def test_the_manifest_says_where_the_prompts_are_from(job: Job, server: EngineServer) -> None:
    job.datasets = {"A": [*prompts(20), {"prompt": "w1 " * 50}]}
    job.dataset_fields = {"filters": {"maxCharacters": 100}, "shuffleSeed": 3, "maxSamples": 15}
    await job.use(server).generate()
    job.finish()
    summary = Summary.model_validate_json((job.output / "summary.json").read_bytes())
    manifest = Manifest.model_validate_json((job.output / "manifest.json").read_bytes())
    (dataset,) = manifest.datasets
    content = (job.folder / "A.jsonl").read_bytes()
    assert [(file.path, file.bytes, file.sha256) for file in dataset.source.files] == [
        (str(job.folder / "A.jsonl"), len(content), hashlib.sha256(content).hexdigest())
    ]
    assert (dataset.source.rows, dataset.source.shuffle_seed, dataset.source.max_samples) == (15, 3, 15)
    assert dataset.source.filters.max_characters == 100
    assert summary.filtered == {"A": dataset.source.filtered}
    assert dataset.sampling["max_completion_tokens"] == 64
    assert manifest.made_by.startswith("draftmill ")


async def test_the_manifest_counts_records_and_tokens_of_the_same_rows(
    job: Job, server: EngineServer
) -> None:
    await job.use(server).generate()
    job.dataset_fields = {"maxSamples": 15}
    await job.generate()
    job.finish()
    manifest = Manifest.model_validate_json((job.output / "manifest.json").read_bytes())
    assert (manifest.records, manifest.completion_tokens, manifest.strangers) == (15, 15 * 16, 5)
    assert manifest.datasets[0].files[0].records == 20, "a file's own number is that of its lines"


def drop_a_row(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def double_a_row(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[0]]


def tear(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1][:-20]]


def miscount(lines: list[bytes]) -> list[bytes]:
    record = json.loads(lines[0])
    record["completion_tokens"] += 1
    return [json.dumps(record).encode() + b"\n", *lines[1:]]


def move(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"dataset":"A"', b'"dataset":"B"'), *lines[1:]]


def scribble(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"{}\n", *lines[1:]]


def rename(lines: list[bytes]) -> list[bytes]:
    record = json.loads(lines[0])
    return [json.dumps({**record, "id": "x"}).encode() + b"\n", *lines[1:]]


FAULTS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a row is missing": (
        drop_a_row,
        "A: 1 rows have neither a record nor a dead letter, for example ",
    ),
    "a row is there twice": (double_a_row, r"raw_responses\.jsonl, line 21: row [0-9a-f]{32} is there twice"),
    "the tail is torn": (tear, "line 20 is torn: it has no end"),
    "a count is wrong": (miscount, "states 17 completion tokens but has 16 output ids"),
    "another dataset's row": (move, "is of dataset B, not A"),
    "an id that is none": (rename, "line 1: 'x' is no id of a row"),
    "a line that is no record": (scribble, "line 2 is not a whole line of its kind"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_on_disk_is_refused_in_a_sentence(job: Job, server: EngineServer, fault: str) -> None:
    await job.use(server).generate()
    edit, message = FAULTS[fault]
    path = job.output / "A" / "raw_responses.jsonl"
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(JobRefusedError, match=message) as refused:
        job.finish()
    assert refused.value.reason == "AccountingMismatch"
    assert not (job.output / "manifest.json").exists()
    assert not Summary.model_validate_json((job.output / "summary.json").read_bytes()).accounted


async def test_a_folder_can_be_looked_through_without_its_config(job: Job, server: EngineServer) -> None:
    await job.use(server).generate()
    audit = audit_folder(job.output / "A")
    assert (audit.tally.done, audit.fault_count, audit.strangers) == (20, 0, 0)


def test_a_folder_that_was_never_generated_is_refused(job: Job) -> None:
    with pytest.raises(JobRefusedError, match=r"no run\.json"):
        job.finish()


@given(st.builds(Refusal, reason=st.text(max_size=64), message=st.text(max_size=1024)))
def test_a_refusal_always_fits_the_termination_message(refusal: Refusal) -> None:
    data = encode(TerminationMessage(refusal=refusal))
    assert len(data) <= TERMINATION_MESSAGE_LIMIT
    read = TerminationMessage.model_validate_json(data)
    assert read.refusal is not None
    assert read.refusal.reason == refusal.reason
