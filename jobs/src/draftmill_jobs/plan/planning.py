"""What can be known before any GPU is asked for: the model, the prompts, the room for the answers."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.manifest import RunFingerprint
from draftmill_api.progress import PlanResult
from draftmill_api.v1alpha1.synthrun import Compression
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.facts import TargetModel, read_model
from draftmill_jobs.model.tokenizer import TemplateError, Tokenizer
from draftmill_jobs.output.fitting import check_fit
from draftmill_jobs.output.roots import own_output
from draftmill_jobs.plan.download import download_model
from draftmill_jobs.prompts.index import read_prompts
from draftmill_jobs.prompts.reading import DatasetRows
from draftmill_jobs.prompts.shapes import Prompt
from draftmill_jobs.prompts.table import KEY_BYTES
from draftmill_jobs.shared.artefacts import below_volume
from draftmill_jobs.shared.folder import fingerprint_of
from draftmill_jobs.shared.lock import lock_files
from draftmill_jobs.shared.parts import answer_files
from draftmill_jobs.shared.settings import DatasetSettings, datasets_of
from draftmill_jobs.shared.write_test import try_to_go_on_with, try_to_write

log = logging.getLogger(__name__)

_TOKENISED = 1000  # prompts of each dataset whose tokens are counted; the rest is estimated from them
_BYTES_PER_TOKEN = 12  # of a record: the id with its comma, and the token's text in up to two places
_BYTES_PER_RECORD = 1000  # everything else in it
_ZSTD_RATIO = 3  # by which compression makes records smaller, at least


def plan(config: SynthJobConfig) -> PlanResult:
    """Looks at everything a run needs.

    Raises:
        JobRefusedError: Something is missing or cannot be used.
    """
    wanted = Path(config.output.path)
    try_to_write(wanted)
    if config.model.hugging_face is not None:
        download_model(Path(config.model.path), config.model.hugging_face)
    model = read_model(config.model)
    _check_answers(config, model)  # before a folder is bound to what is changed then
    config = own_output(config, model)
    output = Path(config.output.path)
    for dataset in datasets_of(config):
        _check_folder(dataset, fingerprint_of(dataset, model, config.run))
    surveys = [_survey(dataset, model.tokenizer) for dataset in datasets_of(config)]
    for survey in surveys:
        log.info(
            "dataset %s: %d rows (and %d filtered), %d duplicates, %d unusable, about %d prompt tokens",
            survey.name,
            survey.total,
            survey.filtered,
            survey.duplicates,
            survey.unusable,
            survey.prompt_tokens,
        )
    _warn_of_long_prompts(config, model, surveys)
    return PlanResult(
        model=model.facts,
        output=below_volume(output) if output != wanted else "",
        dataset_totals=[survey.total for survey in surveys],
        dataset_duplicates=[survey.duplicates for survey in surveys],
        dataset_unusable=[survey.unusable for survey in surveys],
        dataset_filtered=[survey.filtered for survey in surveys],
        prompt_tokens=sum(survey.prompt_tokens for survey in surveys),
        longest_prompt_tokens=max(survey.longest_prompt for survey in surveys),
        bytes_needed=sum(survey.bytes_needed for survey in surveys),
        bytes_free=shutil.disk_usage(output).free,
    )


def _check_folder(dataset: DatasetSettings, asked: RunFingerprint) -> None:
    """Refuses now what the worker would refuse when its servers are up.

    Nothing is locked: whoever writes there goes on, and may well have ended by then.
    """
    if dataset.folder.exists():
        check_fit(dataset, asked, lambda before: read_prompts(dataset, [before]))
        try_to_write(dataset.folder)
        try_to_go_on_with([*answer_files(dataset.folder), *lock_files(dataset.folder)])


@dataclass(frozen=True, slots=True)
class Survey:
    """One dataset, looked through.

    Attributes:
        total: Rows to account for: source rows x samples.
        duplicates: Of them, those whose prompt stands earlier.
        unusable: Of them, those that hold no prompt.
        filtered: Source rows beside them, which the filters left out.
        prompt_tokens: Tokens of the distinct prompts, estimated beyond the first 1,000.
        longest_prompt: Tokens of the longest prompt that was tokenised.
        bytes_needed: Size of the records if every answer took a quarter of its limit.
    """

    name: str
    total: int
    duplicates: int
    unusable: int
    filtered: int
    prompt_tokens: int
    longest_prompt: int
    bytes_needed: int


def _survey(dataset: DatasetSettings, tokenizer: Tokenizer) -> Survey:
    rows = DatasetRows(dataset)
    keys, of_unusable = bytearray(), bytearray()
    tried: set[str] = set()
    lengths: list[int] = []
    first_problem = ""
    for row in rows:
        problem = row.problem
        keys += bytes.fromhex(row.key)
        if row.prompt is None:
            of_unusable += bytes.fromhex(row.key)
        elif len(lengths) < _TOKENISED and row.key not in tried:
            tried.add(row.key)
            try:
                lengths.append(_tokens(dataset, row.prompt, tokenizer))
            except TemplateError as error:
                problem = f"the chat template refuses it: {error}"
        first_problem = first_problem or (f"row {row.position}: {problem}" if problem else "")
    for field, column in rows.unseen_fields.items():
        raise JobRefusedError(
            "PromptsUnreadable", f"dataset {dataset.name}: fields.{field} is {column}, which no row has"
        )
    if not lengths:
        left_out = (
            f"its filters left out all {rows.filtered} rows" if rows.filtered else "its source is empty"
        )
        raise JobRefusedError(
            "NoUsablePrompts",
            f"dataset {dataset.name} has no row that can be asked; {first_problem or left_out}",
        )
    samples = dataset.sampling.samples_per_prompt
    count, distinct, unusable = len(keys) // KEY_BYTES, _distinct(keys), _distinct(of_unusable)
    asked = (distinct - unusable) * samples
    mean = sum(lengths) / len(lengths)
    ratio = _ZSTD_RATIO if dataset.compression is Compression.ZSTD else 1
    tokens_of_a_record = mean + dataset.sampling.max_completion_tokens / 4
    return Survey(
        name=dataset.name,
        total=count * samples,
        duplicates=(count - distinct) * samples,
        unusable=unusable * samples,
        filtered=rows.filtered,
        prompt_tokens=round(mean * asked / samples),
        longest_prompt=max(lengths),
        bytes_needed=round(asked * (_BYTES_PER_RECORD + _BYTES_PER_TOKEN * tokens_of_a_record) / ratio),
    )


def _distinct(keys: bytearray) -> int:
    return len(np.unique(np.frombuffer(keys, dtype=f"S{KEY_BYTES}")))


def _tokens(dataset: DatasetSettings, prompt: Prompt, tokenizer: Tokenizer) -> int:
    return len(tokenizer.prompt_ids(prompt.messages, prompt.tools, dataset.chat_template_kwargs))


def _check_answers(config: SynthJobConfig, model: TargetModel) -> None:
    """Answers that are longer than the servers' sequences would fail row by row."""
    limit = config.context_length or model.facts.context_length
    for dataset in datasets_of(config):
        if limit is not None and dataset.sampling.max_completion_tokens >= limit:
            raise JobRefusedError(
                "AnswersTooLong",
                f"dataset {dataset.name}: maxCompletionTokens {dataset.sampling.max_completion_tokens} "
                f"leaves no room for a prompt in {limit} tokens of context; lower it or raise contextLength",
            )


def _warn_of_long_prompts(config: SynthJobConfig, model: TargetModel, surveys: list[Survey]) -> None:
    limit = config.context_length or model.facts.context_length
    for survey in surveys:
        if limit is not None and survey.longest_prompt >= limit:
            log.warning(
                "dataset %s: the longest prompt has %d tokens, the context %d; such rows are dead letters",
                survey.name,
                survey.longest_prompt,
                limit,
            )
