"""From records to rows.

Reported by users of other tools: a row longer than the limit is cut in one place and not in the others;
resumed input that was shuffled or extended gives duplicates.
"""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill_api.extractjob import JobRecords
from draftmill_api.jobconfig import JobModel, JobRun
from draftmill_api.manifest import Manifest, PartFile
from draftmill_api.record import RecordStatus, prompt_key, row_id
from draftmill_api.v1alpha1.extractrun import OnLongRow
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.index import Input, RowIndex
from draftmill_jobs.extract.records import Row, find_files
from draftmill_jobs.extract.selection import LeftOut, Rules, Survey
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.shared.lines import render_lines
from draftmill_jobs.shared.settings import Share
from tests.support.extract_job import ExtractJob
from tests.support.headed_model import make_headed_model
from tests.support.records import manifest_dataset
from tests.support.tiny_model import CLOSE, THINK, VOCABULARY

ALL = frozenset(RecordStatus)
WHOLE = Share(0, 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_headed_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def facts(model: Path) -> ModelFacts:
    return read_model(JobModel(name="tiny", path=str(model))).facts


@pytest.fixture
def job(tmp_path: Path, model: Path) -> ExtractJob:
    return ExtractJob(tmp_path / "job", model)


def rules(
    statuses: frozenset[RecordStatus] = ALL,
    max_tokens: int | None = None,
    on_long_row: OnLongRow = OnLongRow.CUT,
    context_length: int | None = None,
) -> Rules:
    return Rules(statuses, max_tokens, on_long_row, context_length)


def read(
    job: ExtractJob,
    facts: ModelFacts,
    chosen: Rules | None = None,
    *,
    max_rows: int | None = None,
    share: Share = WHOLE,
    manifest: Path | None = None,
    manifest_sha256: str | None = None,
) -> tuple[Survey, list[Row]]:
    job.write()
    records = JobRecords(
        path=str(job.input), manifest=str(manifest) if manifest else None, manifest_sha256=manifest_sha256
    )
    source = Input(find_files(records, facts), chosen or rules(), facts)
    survey, index = source.survey(max_rows, share=share, is_done=lambda _: False)
    return survey, list(source.read(index, range(len(index))))


@pytest.mark.parametrize(
    ("chosen", "prompt", "tokens", "kept"),
    [
        (rules(), 3, 9, 9),
        (rules(frozenset()), 3, 9, LeftOut.STATUS),
        (rules(max_tokens=9), 3, 9, 9),
        (rules(max_tokens=8), 3, 9, 8),
        (rules(max_tokens=8, on_long_row=OnLongRow.SKIP), 3, 9, LeftOut.LONG),
        (rules(max_tokens=3), 3, 9, LeftOut.NO_ANSWER),
        (rules(), 3, 3, LeftOut.NO_ANSWER),
        (rules(context_length=10), 3, 9, 9),
        (rules(context_length=9), 3, 9, 8),
        (rules(context_length=4), 3, 4, LeftOut.NO_ANSWER),
    ],
    ids=[
        "short",
        "status not wanted",
        "just as long as the limit",
        "longer: cut from the right",
        "longer: skipped",
        "cut to its prompt",
        "no answer at all",
        "below the model's own limit",
        "fills the model's own limit: loses its last token",
        "whose only answer token is the one that is lost",
    ],
)
def test_how_much_of_a_record_is_kept(chosen: Rules, prompt: int, tokens: int, kept: int | LeftOut) -> None:
    assert chosen.kept_tokens(RecordStatus.OK, prompt, tokens) == kept


def test_a_row_says_which_conversation_it_is_a_turn_of(job: ExtractJob, facts: ModelFacts) -> None:
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "1"}]
    for sample, answer in enumerate("ab"):
        after = [{"role": "assistant", "content": answer}, {"role": "user", "content": "2"}]
        job.add(3, 3, id=row_id("1" * 32, sample, turn=0), messages=asked)
        job.add(3, 3, id=row_id("2" * 32, sample, turn=1), messages=[*asked, *after])
    job.add(3, 3, messages=[*asked, *after])

    _, rows = read(job, facts)
    *turns, alone = (row.facts for row in rows)

    assert {turn.split_key for turn in turns} == {prompt_key(asked, None, {})}
    assert (alone.conversation, alone.split_key) == (None, alone.prompt_key)


def test_a_row_is_prompt_and_answer_with_a_mask_on_the_answer(job: ExtractJob, facts: ModelFacts) -> None:
    record = job.add(4, 3, status="truncated", sampling={"temperature": 0.7})

    survey, (row,) = read(job, facts)

    assert row.token_ids.tolist() == record["prompt_ids"] + record["output_ids"]
    assert row.loss_mask.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert row.facts.key == ("A", record["id"])
    assert (row.facts.status, row.facts.temperature, row.facts.prompt_tokens) == ("truncated", 0.7, 4)
    assert (survey.rows, survey.tokens, survey.longest_row) == (1, 7, 7)


def test_thoughts_that_the_template_left_empty_are_of_the_prompt_and_not_under_the_mask(
    job: ExtractJob, facts: ModelFacts
) -> None:
    """Reported failure 21 (NeMo Automodel#3738): the empty `<think></think>` of a template was trained."""
    job.add(4, 3, prompt_ids=[9, 10, THINK, CLOSE])

    _, (row,) = read(job, facts)

    assert row.token_ids[2:4].tolist() == [THINK, CLOSE]
    assert row.loss_mask.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_a_cut_row_is_cut_in_ids_and_mask_alike_and_counted(job: ExtractJob, facts: ModelFacts) -> None:
    record = job.add(4, 30)
    job.add(2, 2)

    survey, (row, _) = read(job, facts, rules(max_tokens=10))

    assert row.token_ids.tolist() == (record["prompt_ids"] + record["output_ids"])[:10]
    assert row.loss_mask.tolist() == [0] * 4 + [1] * 6
    assert (survey.cut_rows, survey.cut_tokens, survey.longest_row) == (1, 24, 10)


def test_what_is_left_out_is_counted_by_why(job: ExtractJob, facts: ModelFacts) -> None:
    job.add(2, 2, status="malformed")
    job.add(9, 2)
    job.add(30, 30)
    job.add(2, 2)
    job.add(2, 2)

    survey, rows = read(
        job, facts, rules(frozenset({RecordStatus.OK}), max_tokens=9, on_long_row=OnLongRow.SKIP), max_rows=1
    )

    assert len(rows) == 1
    assert survey.skipped.to_json() == {"status": 1, "long": 2, "noAnswer": 0, "limit": 1}


def test_workers_share_the_rows_so_that_each_is_one_workers(job: ExtractJob, facts: ModelFacts) -> None:
    job.add_many(30)

    shares = [{row.facts.id for row in read(job, facts, share=Share(index, 3))[1]} for index in range(3)]

    assert set.union(*shares) == {record["id"] for record in job.records}
    assert sum(map(len, shares)) == 30
    assert all(shares)


def test_a_record_that_is_there_twice_is_one_row(job: ExtractJob, facts: ModelFacts) -> None:
    job.add_many(3)
    job.records.append(job.records[0])

    survey, rows = read(job, facts)

    assert survey.rows == len(rows) == 3


def test_the_same_id_in_two_datasets_is_two_rows(job: ExtractJob, facts: ModelFacts) -> None:
    record = job.add(2, 2)
    job.records.append({**record, "dataset": "B"})

    assert [row.facts.dataset for row in read(job, facts)[1]] == ["A", "B"]


def test_a_line_that_a_crash_tore_is_no_record(job: ExtractJob, facts: ModelFacts) -> None:
    job.add_many(2)
    job.write()
    job.records.clear()
    with (job.input / "A" / "raw_responses.jsonl").open("a") as file:
        file.write('{"id": "half')

    assert read(job, facts)[0].rows == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompt_ids": None}, "it has no prompt_ids"),
        ({"output_ids": "4 5"}, "it has no output_ids"),
        ({"completion_tokens": 7}, "it has 2 output_ids and states 7 completion_tokens"),
        ({"prompt_tokens": None}, "it has 2 prompt_ids and states None prompt_tokens"),
        (
            {"output_ids": [4, len(VOCABULARY)]},
            f"output_ids has {len(VOCABULARY)}, and the model's vocabulary",
        ),
        ({"output_ids": [4, -1]}, "output_ids has -1, and the model's vocabulary"),
        ({"output_ids": [4, 1.5]}, "it has no output_ids"),
        ({"status": "good"}, "it is no record of a SynthRun"),
        (
            {"model": {"name": "tiny", "fingerprint": "another"}},
            "is of a model or tokenizer with fingerprint another",
        ),
    ],
)
def test_a_record_that_cannot_be_right_refuses_the_input(
    job: ExtractJob, facts: ModelFacts, changes: dict[str, object], sentence: str
) -> None:
    """Reported failure 24 (speculators#652): an answer began where its prompt, rendered alone, ended."""
    job.add(2, 2)
    job.add(2, 2, **changes)

    with pytest.raises(JobRefusedError, match=sentence) as refused:
        read(job, facts)

    assert job.records[1]["id"] in refused.value.message
    assert refused.value.message.endswith(("or take the row out", "give that one as model.path"))


def test_a_folder_without_records_is_refused(tmp_path: Path, facts: ModelFacts) -> None:
    with pytest.raises(JobRefusedError, match=r"has no records.*; give the output\.path of a SynthRun"):
        find_files(JobRecords(path=str(tmp_path)), facts)


def manifest_of(job: ExtractJob, facts: ModelFacts) -> tuple[Path, str]:
    """What the SynthRun's finish would have written."""
    job.write()
    file = job.input / "A" / "raw_responses.jsonl"
    part = PartFile(
        path="A/raw_responses.jsonl",
        bytes=file.stat().st_size,
        records=len(job.records),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )
    manifest = Manifest(
        made_by="draftmill",
        run=JobRun(),
        model=facts,
        model_name="tiny",
        tokenizer_sha256="0" * 64,
        chat_template_sha256="0" * 64,
        datasets=[manifest_dataset("A", part)],
        records=len(job.records),
        completion_tokens=0,
        strangers=0,
    )
    path = job.input / "manifest.json"
    path.write_text(manifest.model_dump_json(by_alias=True))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_with_a_manifest_only_the_files_that_it_lists_are_read(job: ExtractJob, facts: ModelFacts) -> None:
    job.add_many(3)
    path, digest = manifest_of(job, facts)
    stranger = job.input / "A" / "raw_responses-7.jsonl"
    stranger.write_text(json.dumps({**job.records[0], "id": "0" * 32}) + "\n")

    assert read(job, facts, manifest=path, manifest_sha256=digest)[0].rows == 3


def test_another_manifest_than_the_one_that_the_run_is_bound_to_is_refused(
    job: ExtractJob, facts: ModelFacts
) -> None:
    job.add_many(3)
    path, digest = manifest_of(job, facts)

    with pytest.raises(
        JobRefusedError, match=f"has sha256 {digest}; this run is bound to {'f' * 64}; restore"
    ):
        read(job, facts, manifest=path, manifest_sha256="f" * 64)


def test_records_of_an_earlier_run_with_another_model_are_refused_with_both_fingerprints(
    job: ExtractJob, facts: ModelFacts
) -> None:
    job.add_many(3)
    job.write()

    with pytest.raises(JobRefusedError) as refused:
        find_files(JobRecords(path=str(job.input), model_fingerprint="e" * 64), facts)

    assert refused.value.reason == "ModelMismatch"
    assert f"what {job.input} holds is of a model or tokenizer with fingerprint {'e' * 64}" in str(
        refused.value
    )
    assert facts.fingerprint in refused.value.message


def test_a_manifest_of_another_model_is_refused_with_both_fingerprints(
    job: ExtractJob, facts: ModelFacts
) -> None:
    job.add_many(3)
    path, digest = manifest_of(job, facts.model_copy(update={"fingerprint": "e" * 64}))

    with pytest.raises(JobRefusedError, match=f"{path} is of a model .* fingerprint {'e' * 64}") as refused:
        read(job, facts, manifest=path, manifest_sha256=digest)

    assert refused.value.reason == "ModelMismatch"
    assert facts.fingerprint in refused.value.message


def test_a_file_that_changed_since_the_manifest_is_refused(job: ExtractJob, facts: ModelFacts) -> None:
    job.add_many(3)
    path, digest = manifest_of(job, facts)
    job.add(2, 2)

    with pytest.raises(JobRefusedError, match="is not the file of"):
        read(job, facts, manifest=path, manifest_sha256=digest)


def test_a_changed_byte_in_a_listed_file_is_found_by_the_plan(job: ExtractJob, facts: ModelFacts) -> None:
    job.add_many(3)
    path, _ = manifest_of(job, facts)
    file = job.input / "A" / "raw_responses.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"attempt": 1', b'"attempt": 2', 1))

    files = find_files(JobRecords(path=str(job.input), manifest=str(path)), facts)
    with pytest.raises(JobRefusedError, match="and the manifest lists"):
        files.content_hash()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def shift(file: Path) -> None:
    file.write_bytes(b"0" + file.read_bytes())


def lose_a_token(file: Path) -> None:
    record = json.loads(file.read_text())
    record["output_ids"].pop()
    record["completion_tokens"] -= 1
    file.write_text(json.dumps(record) + "\n")


@pytest.mark.parametrize("change", [empty, shift, lose_a_token])
def test_a_file_that_changes_while_it_is_read_is_refused(
    job: ExtractJob, facts: ModelFacts, change: Callable[[Path], None]
) -> None:
    job.add(2, 5)
    job.write()
    source = Input(find_files(JobRecords(path=str(job.input)), facts), rules(), facts)
    _, index = source.survey(None, share=WHOLE, is_done=lambda _: False)
    change(job.input / "A" / "raw_responses.jsonl")

    with pytest.raises(JobRefusedError, match="was changed while it was being read") as refused:
        list(source.read(index, range(len(index))))

    assert refused.value.reason == "InputChanged"


def test_compressed_records_give_the_same_rows(job: ExtractJob, facts: ModelFacts) -> None:
    _, expected = read(job.add_many(9), facts)
    bare = job.input / "A" / "raw_responses.jsonl"
    lines = bare.read_bytes().splitlines(keepends=True)
    frames = [render_lines(Path("a.zst"), group) for group in (lines[:4], lines[4:])]
    bare.with_name("raw_responses.jsonl.zst").write_bytes(b"".join(frames))
    bare.unlink()
    source = Input(find_files(JobRecords(path=str(job.input)), facts), rules(), facts)
    _, index = source.survey(None, share=WHOLE, is_done=lambda _: False)

    rows = list(source.read(index, range(len(index))))

    assert [(row.facts, row.token_ids.tolist()) for row in rows] == [
        (row.facts, row.token_ids.tolist()) for row in expected
    ]


def test_rows_are_done_longest_first() -> None:
    index = RowIndex()
    for tokens in (5, 9, 7):
        index.add(0, 0, tokens)

    assert list(index.longest_first()) == [1, 2, 0]


def test_what_a_row_costs_in_memory_does_not_depend_on_its_length(job: ExtractJob, facts: ModelFacts) -> None:
    def peak(rows: int, tokens: int) -> int:
        job.records.clear()
        for _ in range(rows):
            job.add(tokens // 2, tokens // 2)
        job.write()
        source = Input(find_files(JobRecords(path=str(job.input)), facts), rules(), facts)
        tracemalloc.start()
        try:
            source.survey(None, share=WHOLE, is_done=lambda _: False)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many, long = peak(200, 10), peak(2200, 10), peak(200, 400)

    assert (many - few) / 2000 < 250  # a million rows take less than 250 MB
    assert long - few < 200_000
