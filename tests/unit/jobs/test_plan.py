"""The plan: what it finds, and what it refuses before any GPU is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.exitcode import ExitCode
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.progress import TerminationMessage
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.main import Options, Step, run_step
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.plan.planning import plan
from tests.support.job import Job, prompts
from tests.support.tiny_model import TinyModel, make_tiny_model


def test_it_counts_rows_tokens_and_bytes(job: Job) -> None:
    job.datasets = {"A": [*prompts(30), *prompts(5), {"no": 1}], "B": prompts(7)}
    job.sampling |= {"samplesPerPrompt": 2}
    found = plan(job.config)
    assert found.dataset_totals == [72, 14]
    assert found.dataset_duplicates == [10, 0]
    assert found.dataset_unusable == [2, 0]
    assert found.prompt_tokens == 37 * len(job.model.prompt_ids([{"role": "user", "content": "w1 w2"}]))
    assert found.longest_prompt_tokens == 7
    assert 0 < found.bytes_needed < found.bytes_free
    facts = found.model
    assert (facts.architecture, facts.layers, facts.hidden_size) == ("TinyForCausalLM", 2, 8)
    assert (facts.vocabulary_size, facts.context_length, facts.think_family) == (1014, 4096, "none")


def test_what_filters_leave_out_are_no_rows_and_are_counted(job: Job) -> None:
    job.datasets = {"A": [*prompts(30), {"prompt": "w1 " * 50}], "B": prompts(4)}
    job.sampling |= {"samplesPerPrompt": 2}
    job.dataset_fields = {"filters": {"maxCharacters": 100}}
    found = plan(job.config)
    assert (found.dataset_totals, found.dataset_filtered) == ([60, 8], [1, 0])


def test_compressed_answers_need_less_room(job: Job) -> None:
    bare = plan(job.config).bytes_needed
    job.compression = "Zstd"
    assert plan(job.config).bytes_needed == pytest.approx(bare / 3, rel=0.01)


def broken(job: Job, what: str) -> SynthJobConfig:
    config = job.config
    match what:
        case "model":
            return config.model_copy(update={"model": config.model.model_copy(update={"path": "/nowhere"})})
        case "prompts":
            (job.folder / "A.jsonl").unlink()
        case "no rows":
            job.datasets = {"A": [{"no": 1}]}
            return job.config
        case "all filtered":
            job.dataset_fields = {"filters": {"minTurns": 2}}
            return job.config
        case "a column that nobody has":
            job.dataset_fields = {"fields": {"system": "sytsem"}}
            return job.config
        case "answers too long":
            job.sampling = {"maxCompletionTokens": 5000}
            return job.config
        case "storage":
            job.output.write_text("a file where the folder shall be")
        case _:
            raise AssertionError(what)
    return config


REFUSALS = {
    "model": ("ModelNotFound", "there is no model at /nowhere"),
    "prompts": ("PromptsNotFound", r"there is no file of prompts at .*A\.jsonl"),
    "no rows": ("NoUsablePrompts", "dataset A has no row that can be asked; row 0: no messages"),
    "all filtered": ("NoUsablePrompts", "its filters left out all 20 rows"),
    "a column that nobody has": ("PromptsUnreadable", "fields.system is sytsem, which no row has"),
    "answers too long": ("AnswersTooLong", "maxCompletionTokens 5000 leaves no room"),
    "storage": ("StorageNotWritable", r"user \d+ of group \d+ cannot write to .*out"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_missing_is_refused_with_a_sentence(job: Job, what: str) -> None:
    reason, message = REFUSALS[what]
    with pytest.raises(JobRefusedError, match=message) as refused:
        plan(broken(job, what))
    assert refused.value.reason == reason


def test_the_last_words_are_the_plan_or_the_refusal(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "message"
    monkeypatch.setenv("DRAFTMILL_TERMINATION_MESSAGE", str(said))
    assert run_step(Step.PLAN, job.write(), Options()) is ExitCode.DONE
    message = TerminationMessage.model_validate_json(said.read_bytes())
    assert message.plan is not None
    assert message.plan.dataset_totals == [20]
    (job.folder / "A.jsonl").unlink()
    assert run_step(Step.PLAN, job.path, Options()) is ExitCode.CONFIGURATION
    message = TerminationMessage.model_validate_json(said.read_bytes())
    assert message.refusal is not None
    assert message.refusal.reason == "PromptsNotFound"
    job.path.write_text(json.dumps({"model": {"name": "m", "path": "relative"}}))
    assert run_step(Step.PLAN, job.path, Options()) is ExitCode.CONFIGURATION
    message = TerminationMessage.model_validate_json(said.read_bytes())
    assert message.refusal is not None
    assert message.refusal.reason == "ConfigurationInvalid"
    assert "model.path" in message.refusal.message


def change(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)


CHANGES: dict[str, tuple[str, bytes, bool]] = {
    "config": ("config.json", b"{}", True),
    "tokenizer": ("tokenizer.json", b"{}", True),
    "chat template": ("chat_template.jinja", b"x", True),
    "weights' header": ("model.safetensors", b"\x03\0\0\0\0\0\0\0{} weights", True),
    "weights' size": ("model.safetensors", b"\x02\0\0\0\0\0\0\0{} weights!", True),
    "weights' content": ("model.safetensors", b"\x02\0\0\0\0\0\0\0{} WEIGHTS", False),
    "readme": ("README.md", b"x", False),
    "cache": (".cache", b"x", False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_fingerprint_changes_with_the_model_and_not_without(tmp_path: Path, what: str) -> None:
    model: TinyModel = make_tiny_model(tmp_path / "m")
    change(model.path, "model.safetensors", b"\x02\0\0\0\0\0\0\0{} weights")
    before = fingerprint(model.path)
    (model.path / "config.json").touch()
    assert fingerprint(model.path) == before, "times do not matter"
    name, content, differs = CHANGES[what]
    change(model.path, name, content)
    assert (fingerprint(model.path) != before) is differs


def test_a_multimodal_models_facts_stand_in_its_text_part(tmp_path: Path, job: Job) -> None:
    model = make_tiny_model(tmp_path / "m")
    config: dict[str, Any] = json.loads((model.path / "config.json").read_text())
    text = {name: config.pop(name) for name in ("num_hidden_layers", "vocab_size")}
    (model.path / "config.json").write_text(json.dumps({**config, "text_config": text}))
    job.model = model
    assert plan(job.config).model.layers == 2
