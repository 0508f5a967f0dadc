"""The reference pages name everything that the files hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill_api.base import ApiModel
from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.record import DeadLetter, Record, RecordStatus
from draftmill_api.trainjob import TrainJobConfig
from draftmill_jobs.engines.failures import FailureKind, RequestFailedError, Verdict

_PERMANENT = {Verdict.DEAD: "yes", Verdict.RETRY: "no", Verdict.STOP: "never written"}
REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
RECORDS = (REFERENCE / "records.md").read_text()


def test_every_key_of_a_record_is_explained_in_the_order_of_the_file() -> None:
    table = RECORDS.split("## A record")[1].split("## A dead letter")[0]
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert rows[: len(Record.model_fields)] == list(Record.model_fields)
    assert all(f"`{status.value}`" in table for status in RecordStatus)


def test_every_key_and_reason_of_a_dead_letter_is_explained() -> None:
    section = RECORDS.split("## A dead letter")[1].split("## The accounts")[0]
    assert all(f"`{name}`" in section for name in DeadLetter.model_fields)
    for kind in FailureKind:
        verdict = RequestFailedError(kind, "").verdict
        named = [line for line in section.splitlines() if f"`{kind.value}`" in line]
        assert bool(named) is (verdict is not Verdict.STOP), kind
        permanent = "as that one" if kind is FailureKind.PREVIOUS_TURN else _PERMANENT[verdict]
        assert all(line.endswith(f"| {permanent} |") for line in named)


@pytest.mark.parametrize(
    ("config", "after", "before"),
    [
        (SynthJobConfig, "# The job's config file", "## Of an ExtractRun"),
        (ExtractJobConfig, "## Of an ExtractRun", "## Of a DrafterTrain"),
        (TrainJobConfig, "## Of a DrafterTrain", "## Which failed rows are asked again"),
    ],
)
def test_every_field_of_a_job_config_is_explained(config: type[ApiModel], after: str, before: str) -> None:
    section = (REFERENCE / "job-config.md").read_text().split(after)[1].split(before)[0]

    names = [field.alias or name for name, field in config.model_fields.items()]

    assert [name for name in names if f"`{name}" not in section] == []
