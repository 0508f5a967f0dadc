"""`onChange: NewFolder`: answers that were asked in another way are kept apart, each kind in a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import JobRun
from draftmill_api.manifest import Manifest, RunFingerprint
from draftmill_api.v1alpha1.synthrun import OnChange
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.model.facts import read_model
from draftmill_jobs.output import roots
from draftmill_jobs.output.roots import find_output, own_output
from draftmill_jobs.plan.planning import plan
from draftmill_jobs.shared.lock import PartLock, this_process
from tests.support.engine_server import EngineServer, Reply
from tests.support.job import Job, prompts
from tests.support.records_on_disk import assert_complete, lines
from tests.support.workers import Workers


@pytest.fixture
def kept_apart(job: Job, server: EngineServer) -> Job:
    job.on_change = "NewFolder"
    return job.use(server)


def ask_at(job: Job, temperature: str) -> Job:
    job.sampling |= {"temperature": temperature}
    return job


def fingerprint(folder: Path, dataset: str = "A") -> str:
    """The one that a dataset's folder would be refused with."""
    return RunFingerprint.model_validate_json((folder / dataset / "run.json").read_bytes()).fingerprint


def beside(job: Job) -> list[Path]:
    return sorted(job.output.parent.glob(f"{job.output.name}@*"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_answers_of_another_sampling_go_to_a_folder_of_their_fingerprint_and_back_to_the_first(
    kept_apart: Job, server: EngineServer
) -> None:
    await kept_apart.generate()
    kept_apart.finish()
    first = content(kept_apart.output)
    assert beside(kept_apart) == []

    ask_at(kept_apart, "0.5")
    chosen = Path(plan(kept_apart.config).output)
    assert beside(kept_apart) == [chosen]
    assert chosen.name == f"out@{fingerprint(chosen)}"
    await kept_apart.generate()
    result = kept_apart.finish()
    assert result.manifest == str(chosen / "manifest.json")
    assert {record["sampling"]["temperature"] for record in assert_complete(chosen, {"A": 20})} == {0.5}
    assert content(kept_apart.output) == first

    ask_at(kept_apart, "1.0")
    assert plan(kept_apart.config).output == ""
    await kept_apart.generate()
    ask_at(kept_apart, "0.5")
    await kept_apart.generate()
    assert (server.count, beside(kept_apart)) == (40, [chosen]), "both are found again"


async def test_a_folder_that_was_begun_and_has_no_answers_is_taken_by_a_run_that_would_be_refused_else(
    kept_apart: Job, server: EngineServer
) -> None:
    """As when a run is deleted before its first answer; with NewFolder it stays whose it is."""
    plan(ask_at(kept_apart, "0.5").config)
    begun = fingerprint(kept_apart.output)
    ask_at(kept_apart, "1.0")
    assert plan(kept_apart.config).output == str(beside(kept_apart)[0])

    kept_apart.on_change = "Refuse"
    assert plan(kept_apart.config).output == ""
    await kept_apart.generate()
    kept_apart.finish()
    assert fingerprint(kept_apart.output) != begun
    records = assert_complete(kept_apart.output, {"A": 20})
    assert {record["sampling"]["temperature"] for record in records} == {1.0}


async def test_answers_to_prompts_whose_text_was_changed_are_kept_apart_each_time(
    kept_apart: Job, server: EngineServer
) -> None:
    versions = [prompts(20), [*prompts(15), *prompts(5, start=100)], [*prompts(15), *prompts(5, start=200)]]
    for rows in versions:
        kept_apart.datasets = {"A": rows}
        await kept_apart.generate()
        assert kept_apart.finish().progress.ok == 20
    named = f"out@{fingerprint(kept_apart.output)}"
    assert [path.name for path in beside(kept_apart)] == [named, f"{named}-2"]
    for rows in versions:
        kept_apart.datasets = {"A": rows}
        await kept_apart.generate()
    assert server.count == 60


async def test_if_one_of_several_datasets_has_changed_all_of_them_go_to_the_folder_beside(
    kept_apart: Job, server: EngineServer
) -> None:
    kept_apart.datasets = {"A": prompts(20), "B": prompts(10)}
    await kept_apart.generate()
    kept_apart.fields_of = {"A": {"sampling": {"temperature": "0.5"}}}
    await kept_apart.generate()
    (chosen,) = beside(kept_apart)
    assert_complete(chosen, {"A": 20, "B": 10})
    kept_apart.finish()
    manifest = Manifest.model_validate_json((chosen / "manifest.json").read_bytes())
    assert [each.sampling["temperature"] for each in manifest.datasets] == [0.5, 1.0]
    assert_complete(kept_apart.output, {"A": 20, "B": 10})
    assert server.count == 60


async def test_a_dataset_that_is_added_joins_the_answers_of_its_run(
    kept_apart: Job, server: EngineServer
) -> None:
    await kept_apart.generate()
    await ask_at(kept_apart, "0.5").generate()
    kept_apart.datasets |= {"B": prompts(10)}
    kept_apart.fields_of = {"B": {"sampling": {"temperature": "0.7"}}}
    await kept_apart.generate()
    (chosen,) = beside(kept_apart)
    assert_complete(chosen, {"A": 20, "B": 10})
    assert server.count == 50


async def test_without_the_answers_of_before_those_beside_are_gone_on_with(
    kept_apart: Job, server: EngineServer
) -> None:
    await kept_apart.generate()
    await ask_at(kept_apart, "0.5").generate()
    shutil.rmtree(kept_apart.output)
    await kept_apart.generate()
    assert server.count == 40
    assert not list(lines(kept_apart.output))


async def test_answers_of_which_nobody_can_say_how_they_were_asked_are_kept_apart(
    kept_apart: Job, server: EngineServer
) -> None:
    await kept_apart.generate()
    (kept_apart.output / "A" / "run.json").unlink()
    await kept_apart.generate()
    assert_complete(beside(kept_apart)[0], {"A": 20})
    assert server.count == 40


async def test_a_folder_that_somebody_else_named_likewise_is_never_taken(
    kept_apart: Job, server: EngineServer
) -> None:
    await kept_apart.generate()
    await ask_at(kept_apart, "0.5").generate()
    (chosen,) = beside(kept_apart)
    chosen.rename(chosen.with_name("out@before"))
    await kept_apart.generate()
    assert chosen.exists()
    assert server.count == 60


async def test_two_runs_that_are_planned_before_either_has_an_answer_have_a_folder_each(
    kept_apart: Job, server: EngineServer
) -> None:
    planned = [plan(ask_at(kept_apart, temperature).config).output for temperature in ("0.0", "0.5", "1.0")]
    assert planned[0] == ""
    assert [Path(output) for output in sorted(planned[1:])] == beside(kept_apart)
    for temperature in ("1.0", "0.5", "0.0"):
        await ask_at(kept_apart, temperature).generate()
        kept_apart.finish()
    for folder in (kept_apart.output, *beside(kept_apart)):
        (temperature,) = {record["sampling"]["temperature"] for record in assert_complete(folder, {"A": 20})}
        assert json.loads((folder / "A" / "run.json").read_bytes())["sampling"]["temperature"] == temperature


async def test_workers_that_start_together_without_a_plan_choose_the_same_folder(
    kept_apart: Job, server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_apart.run = {"name": "r", "uid": "u"}
    await kept_apart.generate()
    ask_at(kept_apart, "0.5").datasets = {"A": prompts(60)}
    server.script = lambda _: Reply(delay=0.01)
    ended = await Workers(kept_apart, monkeypatch).all(3)
    assert {code for code, _ in ended} == {ExitCode.DONE}
    assert_complete(beside(kept_apart)[0], {"A": 60})
    assert kept_apart.finish().progress.ok == 60


async def test_a_folder_that_another_worker_begins_while_this_one_looks_is_chosen_by_both(
    kept_apart: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept_apart.generate()
    config = ask_at(kept_apart, "0.5").config
    model, list_folders = read_model(config.model), roots._beside
    quicker: list[Path] = []

    def list_too_early(base: Path) -> list[Path]:
        found = list_folders(base)
        monkeypatch.setattr(roots, "_beside", list_folders)
        quicker.append(Path(own_output(config, model).output.path))
        return found

    monkeypatch.setattr(roots, "_beside", list_too_early)
    assert Path(own_output(config, model).output.path) == quicker[0] == beside(kept_apart)[0]
    assert len(beside(kept_apart)) == 1


async def test_a_folder_that_cannot_be_read_is_refused_rather_than_begun_anew_beside(
    kept_apart: Job, server: EngineServer
) -> None:
    await kept_apart.generate()
    (kept_apart.output / "A" / "run.json").write_text("{")
    with pytest.raises(JobRefusedError, match=r"is not a run\.json of Draftmill"):
        plan(kept_apart.config)
    assert beside(kept_apart) == []


def test_answers_that_were_too_long_to_be_asked_for_leave_the_first_folder_free(kept_apart: Job) -> None:
    longest = kept_apart.sampling["maxCompletionTokens"]
    kept_apart.sampling["maxCompletionTokens"] = 1_000_000
    with pytest.raises(JobRefusedError, match="lower it or raise contextLength"):
        plan(kept_apart.config)

    kept_apart.sampling["maxCompletionTokens"] = longest
    assert plan(kept_apart.config).output == ""
    assert beside(kept_apart) == []


def test_there_is_no_place_beside_the_root_of_the_volume(kept_apart: Job) -> None:
    config = kept_apart.config
    output = config.output.model_copy(update={"path": "/data/."})
    assert output.on_change is OnChange.NEW_FOLDER
    with pytest.raises(JobRefusedError, match="the root of the data volume, beside which there is no place"):
        find_output(config.model_copy(update={"output": output}), read_model(config.model))


def test_a_finish_without_any_answers_begins_no_folder(kept_apart: Job) -> None:
    with pytest.raises(JobRefusedError, match=r"no run\.json: nothing was generated there"):
        kept_apart.finish()
    assert not kept_apart.output.exists()


def test_a_folder_that_stays_locked_is_named_with_its_holder_before_long(
    kept_apart: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a dead process whose lock an NFS server still keeps."""
    monkeypatch.setattr(roots, "_LONGEST_WAIT", 0.1)
    dataset = kept_apart.output / "A"
    dataset.mkdir(parents=True)
    lock = PartLock(dataset / "run.json", this_process(JobRun(kind="SynthRun", name="dead"), 1))
    said = r"was locked for 0\.1 s by run dead .* have it released"
    with pytest.raises(JobFailedError, match=said) as failed:
        plan(kept_apart.config)
    assert failed.value.reason == "FolderInUse"
    lock.release()
    assert plan(kept_apart.config).output == ""
