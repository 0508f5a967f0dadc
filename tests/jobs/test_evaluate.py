"""Held-out prompts on a server that drafts and on one that does not, and what is made of its counters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from draftmill_api.drafter import DrafterEvaluation
from draftmill_api.exitcode import ExitCode
from draftmill_api.trainjob import Served
from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.errors import JobError, JobFailedError, JobRefusedError
from draftmill_jobs.evaluate.comparing import together
from draftmill_jobs.evaluate.drafting import Drafted, of_sglang, of_vllm
from draftmill_jobs.evaluate.evaluating import EVALUATION_FILE, answers_file, evaluate
from draftmill_jobs.evaluate.prompts import Prompt, held_out_prompts
from draftmill_jobs.evaluate.replaying import replay
from draftmill_jobs.main import main
from draftmill_jobs.store import Check, Store
from draftmill_jobs.train.packing import is_held_out
from tests.support.engine_server import LENGTH, EngineServer, Fail, Reply, Request, Stall
from tests.support.server_program import server_program
from tests.support.states import row, written
from tests.support.tiny_model import TinyModel
from tests.support.train_job import TrainJob

PAGE = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 10.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 60.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 45.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 15.0
"""
ACCEPTED = 3  # of each cycle of the played server


@dataclass
class DraftingServer(EngineServer):
    """Counts as a server that takes three drafted tokens in each cycle."""

    def page(self, path: str) -> tuple[int, bytes]:
        if path != "/metrics":
            return super().page(path)
        cycles = self.generated // (ACCEPTED + 1)
        lines = [f"vllm:spec_decode_num_drafts_total {cycles}"]
        lines += [f"vllm:spec_decode_num_accepted_tokens_total {ACCEPTED * cycles}"]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}} {cycles}'
            for place in range(ACCEPTED)
        ]
        return 200, "\n".join(lines).encode() + b"\n"


def test_vllms_counters_are_read_by_position_and_over_all_its_engines() -> None:
    found = of_vllm(PAGE)

    assert found == Drafted(50, 60, (45, 15))
    assert found.length == 2.2
    assert found.shares == (0.9, 0.3)


@pytest.mark.parametrize(
    "page", ["", "vllm:generation_tokens_total 5\n", "vllm:spec_decode_num_drafts_total x\n"]
)
def test_a_server_that_does_not_draft_has_none(page: str) -> None:
    assert of_vllm(page) is None


def test_only_what_came_since_counts() -> None:
    assert Drafted(50, 60, (45, 15)) - Drafted(10, 5, (5,)) == Drafted(40, 55, (40, 15))


@pytest.mark.parametrize("name", ["spec_correct_drafts_histogram", "spec_accept_histogram"])
def test_sglang_says_with_each_answer_how_many_drafts_its_cycles_accepted(name: str) -> None:
    """Versions name it differently; the last cycle may accept more than the answer has room for."""
    metas = [
        {"spec_verify_ct": 5, "completion_tokens": 14, name: [1, 0, 1, 3]},
        {"spec_verify_ct": 4, "completion_tokens": 7, name: [2, 2]},
    ]

    assert of_sglang(metas) == Drafted(9, 13, (6, 4, 3))


def test_a_sglang_without_those_counts_is_known_by_the_length_of_its_answers() -> None:
    told = {"spec_verify_ct": 4, "completion_tokens": 7, "spec_accept_histogram": [2, 2]}

    assert of_sglang([{"spec_verify_ct": 5, "completion_tokens": 16}, told]) == Drafted(9, 12)


def test_an_answer_of_one_token_took_no_cycle_and_is_no_sign_that_sglang_does_not_draft() -> None:
    told = {"spec_verify_ct": 4, "completion_tokens": 7, "spec_accept_histogram": [2, 2]}

    assert of_sglang([{"completion_tokens": 1}, told]) == Drafted(4, 2, (2,))
    assert of_sglang([{"completion_tokens": 16}]) is None


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    return TrainJob(tmp_path / "job")


def test_prompts_are_those_held_out_each_once_and_without_their_answers(job: TrainJob) -> None:
    with Store.open(job.store, check=Check.HEADERS) as store:
        prompts = held_out_prompts(store, percent=20, most=100)
        by_key = {"/".join(row.line.key): row for row in store}
        held_out = [line for line in store.lines if is_held_out(line.split_key, 20)]

    assert len(prompts) == len(held_out) > 0
    for prompt in prompts:
        assert prompt.token_ids == tuple(by_key[prompt.key].token_ids[:4].tolist())


def test_turns_of_one_conversation_are_asked_together_or_not_at_all(tmp_path: Path) -> None:
    turns = [
        replace(turn, facts=turn.facts.model_copy(update={"conversation": str(number % 20)}))
        for number, turn in enumerate(map(row, range(60)))
    ]
    with Store.open(written(tmp_path, turns), check=Check.HEADERS) as store:
        asked = {prompt.key for prompt in held_out_prompts(store, percent=50, most=100)}
        sides = {(line.conversation, "/".join(line.key) in asked) for line in store.lines}

    assert len(sides) == 20
    assert {is_asked for _, is_asked in sides} == {True, False}


def asked(job: TrainJob, plain: EngineServer, drafting: EngineServer, **fields: Any) -> None:
    job.fields["target"] = {"name": plain.model.name, "path": str(job.target)}
    job.fields["evaluation"] = {
        "plain": {"name": "plain", "url": plain.url, "engine": "VLLM"},
        "drafting": {"name": "drafting", "url": drafting.url, "engine": "VLLM"},
        "maxRows": 3,
        "maxTokens": 64,
        **fields,
    }


async def measured(job: TrainJob) -> DrafterEvaluation:
    found = await evaluate(job.config)
    assert found is not None
    return found


async def test_both_servers_are_asked_the_same_and_compared(job: TrainJob, model: TinyModel) -> None:
    async with EngineServer(model) as plain, DraftingServer(model) as drafting:
        asked(job, plain, drafting, concurrency=[1, 2])
        found = await measured(job)

    written = DrafterEvaluation.model_validate_json((job.output / EVALUATION_FILE).read_bytes())
    assert written == found
    assert [each.concurrency for each in found.measured] == [1, 2]
    for each in found.measured:
        assert (each.prompts, each.tokens, each.identical) == (3, 3 * LENGTH, 3)
        assert each.acceptance_length == ACCEPTED + 1
        assert each.by_position == [1.0] * ACCEPTED
        assert each.ratio == each.drafting_tokens_per_second / each.plain_tokens_per_second
    assert {request.payload["temperature"] for request in plain.requests + drafting.requests} == {0.0}


async def test_sglang_is_asked_and_compared_as_vllm_is(job: TrainJob, model: TinyModel) -> None:
    def drafts(body: dict[str, Any]) -> None:
        cycles = (LENGTH - 1) // (ACCEPTED + 1)
        body["meta_info"] |= {
            "spec_verify_ct": cycles,
            "spec_correct_drafts_histogram": [0, 1, 0, cycles - 1],
        }

    async with (
        EngineServer(model) as plain,
        EngineServer(model, lambda _: Reply(edit=drafts)) as drafting,
    ):
        asked(job, plain, drafting)
        for server in ("plain", "drafting"):
            job.fields["evaluation"][server]["engine"] = "SGLang"
        (found,) = (await measured(job)).measured

    assert (found.prompts, found.identical, found.cycles) == (3, 3, 9)
    assert found.acceptance_length == pytest.approx(1 + 7 / 3)
    assert found.by_position == pytest.approx([1, 2 / 3, 2 / 3])


async def test_answers_that_differ_are_counted(job: TrainJob, model: TinyModel) -> None:
    def another(request: Request) -> Reply:
        return Reply(ids=[20, 21, 22, 2]) if request.tries else Reply()

    async with EngineServer(model) as plain, DraftingServer(model, another) as drafting:
        asked(job, plain, drafting)
        (found,) = (await measured(job)).measured

    assert (found.prompts, found.identical) == (3, 2)


async def test_servers_that_run_one_after_the_other_are_compared_when_both_have_answered(
    job: TrainJob, model: TinyModel
) -> None:
    async with EngineServer(model) as plain:
        asked(job, plain, plain)
        assert await evaluate(job.config, Served.PLAIN) is None
    async with DraftingServer(model) as drafting:
        asked(job, plain, drafting)
        found = await evaluate(job.config, Served.DRAFTING)

    assert found is not None
    assert [(each.prompts, each.identical, each.acceptance_length) for each in found.measured] == [
        (3, 3, ACCEPTED + 1)
    ]
    assert (job.output / EVALUATION_FILE).exists()


async def test_the_drafting_server_alone_has_nothing_to_be_compared_with(
    job: TrainJob, model: TinyModel
) -> None:
    async with DraftingServer(model) as drafting:
        asked(job, drafting, drafting)
        with pytest.raises(JobRefusedError, match=r"answers-plain.json cannot be read"):
            await evaluate(job.config, Served.DRAFTING)


@pytest.mark.parametrize("other", [{"maxRows": 2}, {"maxTokens": 63}, {"concurrency": [2]}])
async def test_answers_to_something_else_are_not_compared(
    job: TrainJob, model: TinyModel, other: dict[str, Any]
) -> None:
    async with EngineServer(model) as plain, DraftingServer(model) as drafting:
        asked(job, plain, drafting)
        await evaluate(job.config, Served.PLAIN)
        asked(job, plain, drafting, **other)
        with pytest.raises(JobRefusedError, match="ask the plain server again"):
            await evaluate(job.config, Served.DRAFTING)


async def test_a_run_is_told_of_all_concurrencies_together_and_of_the_best_ratio(
    job: TrainJob, model: TinyModel
) -> None:
    async with EngineServer(model) as plain, DraftingServer(model) as drafting:
        asked(job, plain, drafting, concurrency=[1, 2])
        found = await measured(job)

    told, (one, two) = together(found), found.measured
    assert (told.answers, told.identical, told.tokens) == (6, 6, one.tokens + two.tokens)
    assert (told.acceptance_length, told.by_position) == ("4.00", ["1.000"] * ACCEPTED)
    assert told.ratio == f"{max(one.ratio, two.ratio):.2f}"
    assert [rate.concurrency for rate in told.rates] == [1, 2]


async def test_a_server_without_a_drafter_is_named(job: TrainJob, model: TinyModel) -> None:
    async with EngineServer(model) as plain, EngineServer(model) as drafting:
        asked(job, plain, drafting)
        with pytest.raises(JobRefusedError, match="counts no draft cycles"):
            await evaluate(job.config)


@pytest.mark.parametrize(("status", "ends"), [(500, JobFailedError), (400, JobRefusedError)])
async def test_a_server_that_fails_is_named_with_its_words_and_asked_again_if_that_may_help(
    job: TrainJob, model: TinyModel, status: int, ends: type[JobError]
) -> None:
    async with EngineServer(model, lambda _: Fail(status)) as plain, DraftingServer(model) as drafting:
        asked(job, plain, drafting)
        with pytest.raises(ends, match=r"plain at http://127.0.0.1:[0-9]+: .*made to fail"):
            await evaluate(job.config)


async def test_a_server_that_shows_no_sign_of_life_is_given_up(model: TinyModel) -> None:
    async with EngineServer(model, lambda _: Stall()) as server, open_session() as session:
        spec = Endpoint(name="plain", url=server.url, engine=Engine.VLLM)
        with pytest.raises(JobFailedError, match="plain showed no sign of life"):
            await replay(
                session,
                spec,
                [Prompt("d/0", (5, 6, 7))],
                model=model.name,
                max_tokens=64,
                concurrency=1,
                stall_timeout=0.5,
            )


async def test_how_far_it_is_is_told_with_each_tenth_of_the_prompts(job: TrainJob, model: TinyModel) -> None:
    told = list[str]()
    async with EngineServer(model) as plain, DraftingServer(model) as drafting:
        asked(job, plain, drafting, concurrency=[1, 2])
        await evaluate(job.config, Served.PLAIN, told.append)

    shares = (0, 30, 60, 100)
    assert told == [f"{share} % of 3 prompts, {many} at a time" for many in (1, 2) for share in shares]


def test_the_command_asks_one_server_at_a_time_and_ends_with_what_became_of_it(
    job: TrainJob, model: TinyModel, caplog: pytest.LogCaptureFixture
) -> None:
    with server_program(model) as url:
        job.fields["target"] = {"name": model.name, "path": str(job.target)}
        job.fields["evaluation"] = {
            name: {"name": name, "url": url, "engine": "VLLM"} for name in ("plain", "drafting")
        }
        command = ["evaluate", "--config", str(job.write()), "--server"]

        assert main([*command, "plain"]) == ExitCode.DONE
        assert main([*command, "drafting"]) == ExitCode.CONFIGURATION
    assert answers_file(job.output, Served.PLAIN).exists()
    assert "NotDrafting: drafting at" in caplog.text


async def test_without_held_out_prompts_there_is_nothing_to_ask(job: TrainJob, model: TinyModel) -> None:
    async with EngineServer(model) as plain, DraftingServer(model) as drafting:
        asked(job, plain, drafting)
        job.fields["heldOutPercent"] = 0
        with pytest.raises(JobRefusedError, match="so there is no prompt to ask"):
            await evaluate(job.config)


async def test_a_config_without_servers_is_refused(job: TrainJob) -> None:
    with pytest.raises(JobRefusedError, match="name a plain server and one that drafts"):
        await evaluate(job.config)
    assert "evaluation" not in json.loads(job.path.read_text())
