"""A trained drafter in a real vLLM: it loads, drafts, changes no answer, and is accepted as was simulated.

So do its other forms: in the format of speculators, and with the target's whole vocabulary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_api.drafter import DrafterEvaluation
from draftmill_api.jobconfig import JobModel, JobOutput, JobRun
from draftmill_api.trainjob import JobEvaluation, JobStore, TrainJobConfig
from draftmill_api.v1alpha1.draftertrain import Scratch
from draftmill_api.v1alpha1.shared import Endpoint, Engine
from draftmill_jobs.doctor.drafter_checks import evaluate_on
from draftmill_jobs.doctor.evidence import Patient
from draftmill_jobs.engines.client import open_session
from draftmill_jobs.evaluate.drafting import Drafted
from draftmill_jobs.evaluate.evaluating import evaluate
from draftmill_jobs.evaluate.prompts import held_out_prompts
from draftmill_jobs.evaluate.replaying import Replayed, replay
from draftmill_jobs.store import Check, Store
from draftmill_jobs.train.exporting import export_as_speculators
from tests.support.drafting_server import NAME, serving
from tests.support.toy_drafter import DRAFT_TOKENS, ToyDrafter, train_toy_drafter
from tests.support.toy_target import FOLDER, VOCABULARY, toy_rows, write_toy_store

pytestmark = [pytest.mark.life, pytest.mark.timeout(7200)]

ROWS, ANSWER = 100, 96
LEAST_CYCLES = 1000
FEW = 8  # prompts
LEAST_LENGTH = 2.0
LARGEST_ERROR = 0.03  # relative, of the share of cycles that took a position's token


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> ToyDrafter:
    return train_toy_drafter(tmp_path_factory.mktemp("drafter"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that the drafter was not trained on, with the target's own greedy answers."""
    return write_toy_store(
        tmp_path_factory.mktemp("store") / "states", toy_rows(ROWS, seed=11, answer=ANSWER)
    )


@pytest.fixture(scope="module")
def servers(drafter: ToyDrafter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    logs = tmp_path_factory.mktemp("logs")
    with (
        serving(FOLDER, logs / "plain", drafter=None, draft_tokens=DRAFT_TOKENS) as plain,
        serving(FOLDER, logs / "drafting", drafter=drafter.folder, draft_tokens=DRAFT_TOKENS) as drafting,
    ):
        yield plain, drafting


@pytest.fixture(scope="module")
def measured(
    servers: tuple[str, str], store: Path, tmp_path_factory: pytest.TempPathFactory
) -> DrafterEvaluation:
    plain, drafting = servers
    config = TrainJobConfig(
        run=JobRun(kind="DrafterTrain", name="toy"),
        target=JobModel(name=NAME, path=str(FOLDER)),
        store=JobStore(path=str(store)),
        output=JobOutput(path=str(tmp_path_factory.mktemp("output"))),
        scratch=Scratch(draft_vocab_size=1),
        held_out_percent=99,
        evaluation=JobEvaluation(
            plain=Endpoint(name="plain", url=plain, engine=Engine.VLLM),
            drafting=Endpoint(name="drafting", url=drafting, engine=Engine.VLLM),
            max_rows=ROWS,
            max_tokens=ANSWER,
            concurrency=[16],
        ),
    )
    found = asyncio.run(evaluate(config))
    assert found is not None
    return found


def test_a_drafter_changes_no_answer(measured: DrafterEvaluation) -> None:
    (found,) = measured.measured

    assert found.identical == found.prompts > ROWS * 0.9


def test_it_is_accepted_as_was_simulated(
    measured: DrafterEvaluation, store: Path, drafter: ToyDrafter
) -> None:
    (found,) = measured.measured
    patient = Patient(store, drafter.folder, FOLDER, most_rows=ROWS)
    simulated = evaluate_on(patient, patient.start).acceptance

    print(f"served: {found.acceptance_length:.3f} over {found.cycles} cycles, {found.by_position}")
    print(f"simulated: {simulated.length:.3f} over {simulated.cycles} cycles, {simulated.by_position}")
    assert min(found.cycles, simulated.cycles) >= LEAST_CYCLES
    assert found.by_position == pytest.approx(list(simulated.by_position), rel=LARGEST_ERROR)


def test_the_format_of_speculators_is_served_with_the_target_that_it_names(
    drafter: ToyDrafter, store: Path, tmp_path: Path
) -> None:
    export_as_speculators(
        drafter.folder, FOLDER, tmp_path / "nested", target_name=str(FOLDER), draft_tokens=DRAFT_TOKENS
    )
    with serving(tmp_path / "nested", tmp_path / "log", drafter=None, draft_tokens=DRAFT_TOKENS) as url:
        assert drafted(url, store).length > LEAST_LENGTH


def test_a_drafter_that_can_say_every_token_is_served(store: Path, tmp_path: Path) -> None:
    whole = train_toy_drafter(tmp_path / "whole", tokens=VOCABULARY)
    with serving(FOLDER, tmp_path / "log", drafter=whole.folder, draft_tokens=DRAFT_TOKENS) as url:
        assert drafted(url, store).length > LEAST_LENGTH


def drafted(url: str, store: Path) -> Drafted:
    """What a server counts while it answers a few prompts."""

    async def asked() -> Replayed:
        with Store.open(store, check=Check.HEADERS) as rows:
            prompts = held_out_prompts(rows, percent=99, most=FEW)
        spec = Endpoint(name="drafting", url=url, engine=Engine.VLLM)
        async with open_session() as session:
            return await replay(session, spec, prompts, model=NAME, max_tokens=ANSWER, concurrency=FEW)

    found = asyncio.run(asked()).drafted
    assert found is not None
    return found
