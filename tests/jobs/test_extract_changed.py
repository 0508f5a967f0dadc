"""What changed between a plan and the worker that it was made for.

Reported by users of other tools: states of two models in one set; a second job fills the folder of the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill_api.jobconfig import JobModel
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.preparing import prepare
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.store import audit_store
from tests.support.extract_job import ExtractJob
from tests.support.filled_store import fill
from tests.support.headed_model import make_headed_model


@pytest.fixture
def job(tmp_path: Path) -> ExtractJob:
    """A job of two rows that carries its plan, as the worker of a cluster's run does."""
    job = ExtractJob(tmp_path / "job", make_headed_model(tmp_path / "model"))
    job.add(2, 2)
    job.add(2, 4)
    job.fields["plan"] = job.plan().to_json()
    return job


async def refusal(job: ExtractJob) -> JobRefusedError:
    with pytest.raises(JobRefusedError) as refused:
        await job.extract()
    return refused.value


async def test_a_model_that_was_changed_since_the_plan_is_refused(job: ExtractJob) -> None:
    config = job.model / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 1.0}))

    error = await refusal(job)

    assert error.reason == "ModelMismatch"
    assert f"the plan saw {job.fingerprint}: the model was changed since" in error.message


def test_layers_are_those_of_the_plan_though_the_drafter_they_were_taken_from_changed(
    job: ExtractJob,
) -> None:
    """Servers write the plan's: states of as many other layers would be taken for them."""
    drafter = job.folder / "drafter" / "config.json"
    drafter.parent.mkdir()
    drafter.write_text(json.dumps({"eagle_aux_hidden_state_layer_ids": [1, 2]}))
    del job.fields["plan"]
    job.fields["layers"] = {"fromDrafter": str(drafter.parent)}
    job.fields["plan"] = job.plan().to_json()

    drafter.write_text(json.dumps({"eagle_aux_hidden_state_layer_ids": [1, 3]}))

    facts = read_model(JobModel(name="tiny", path=str(job.model))).facts
    assert prepare(job.config, facts).binding.layer_ids == [1, 2, facts.layers]


def add_a_record(job: ExtractJob) -> None:
    job.add(2, 2)


def lengthen_a_record(job: ExtractJob) -> None:
    job.records.pop()
    job.add(2, 9)


def move_a_token(job: ExtractJob) -> None:
    job.records.clear()
    job.add(2, 1)
    job.add(2, 5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (add_a_record, "the records make 3 rows, and the plan found 2"),
        (lengthen_a_record, "the records make 15 tokens, and the plan found 10"),
        (move_a_token, "the records make 7 tokens in the longest row, and the plan found 6"),
    ],
)
async def test_records_that_were_changed_since_the_plan_are_refused(
    job: ExtractJob, change: Callable[[ExtractJob], None], sentence: str
) -> None:
    change(job)

    error = await refusal(job)

    assert error.reason == "InputChanged"
    assert sentence in error.message


@pytest.mark.parametrize("share", ["0/1", "0/2", "1/2"])
async def test_a_store_that_another_run_has_filled_since_the_plan_is_left_as_it_is(
    job: ExtractJob, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTMILL_WORKER", share)
    other = ExtractJob(job.folder / "other", job.model, fields={"output": {"path": str(job.output)}})
    other.add_many(5)
    other.records = other.records[2:]  # the ids of the first two are those of the job's own
    fill(other)
    other.finish()

    error = await refusal(job)

    assert error.reason == "StoreDiffers"
    assert "not among those that this run selects, 3 in all, such as A/" in error.message
    assert (job.output / "manifest.json").exists()
    assert audit_store(job.output).faults == []
