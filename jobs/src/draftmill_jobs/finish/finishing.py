"""The end of a run: counts what is on disk against what the sources ask for, and writes that down."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from draftmill_api.jobconfig import SynthJobConfig
from draftmill_api.manifest import Manifest, ManifestDataset, Summary
from draftmill_api.progress import FinishResult, packed
from draftmill_api.v1alpha1.generation import AUTO
from draftmill_api.v1alpha1.status import MOST_FAILURES, Failure, RunProgress
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.finish.auditing import Audit, audit_folder
from draftmill_jobs.finish.sources import describe_source
from draftmill_jobs.model.facts import TargetModel, read_model
from draftmill_jobs.model.fingerprint import tokenizer_hash
from draftmill_jobs.output.roots import find_output
from draftmill_jobs.prompts.index import PromptIndex, read_prompts
from draftmill_jobs.prompts.table import RowTable
from draftmill_jobs.shared.artefacts import MANIFEST_FILE, SUMMARY_FILE, below_volume, write_json
from draftmill_jobs.shared.chosen_concurrency import read_chosen
from draftmill_jobs.shared.folder import check_same, fingerprint_of, read_fingerprint
from draftmill_jobs.shared.left_out import read_left_out
from draftmill_jobs.shared.settings import DatasetSettings, datasets_of, sampling_facts
from draftmill_jobs.shared.tally import FailureTally, sum_counts

log = logging.getLogger(__name__)


def finish(config: SynthJobConfig) -> FinishResult:
    """Checks the answers of a run and writes `summary.json` and, when they are right, `manifest.json`.

    Raises:
        JobRefusedError: They are not: something is missing, twice, broken, or does not add up.
    """
    model = read_model(config.model)
    config = find_output(config, model)
    output, datasets = Path(config.output.path), datasets_of(config)
    prompts = [read_prompts(dataset) for dataset in datasets]
    audits = [_audit(*each, model, config) for each in zip(datasets, prompts, strict=True)]
    summary = _summary(config, audits, prompts)
    for comparison in summary.length_bias:
        if comparison.warning:
            log.warning("%s", comparison.warning)
    write_json(output / SUMMARY_FILE, summary)
    _check(audits)
    digest = write_json(output / MANIFEST_FILE, _manifest(config, model, datasets, prompts, audits))
    return FinishResult(
        progress=summary.progress,
        dataset_counts=[packed(audit.tally.progress()) for audit in audits],
        cap_reached=any(audit.tally.not_admitted for audit in audits),
        manifest=below_volume(output / MANIFEST_FILE),
        manifest_sha256=digest,
        failures=most_frequent_failures(audits),
    )


def _audit(
    dataset: DatasetSettings, prompts: PromptIndex, model: TargetModel, config: SynthJobConfig
) -> Audit:
    before = read_fingerprint(dataset.folder)
    if before is None:
        raise JobRefusedError(
            "OutputMissing", f"{dataset.folder} has no run.json: nothing was generated there"
        )
    check_same(dataset.folder, before, fingerprint_of(dataset, model, config.run))
    table = RowTable(prompts.keys, dataset.sampling.samples_per_prompt, prompts.roots)
    audit = audit_folder(dataset.folder, table)
    missing, example = table.unsettled()
    left_out = 0 if dataset.max_tokens is None else _left_out(audit, dataset.folder, dataset.max_tokens)
    if missing == left_out:
        audit.tally.not_admitted = left_out
    else:
        because = f" ({left_out} were left out by maxTokens)" if left_out else ""
        audit.fault(f"{missing} rows have neither a record nor a dead letter{because}, for example {example}")
    if audit.strangers:
        log.info("dataset %s: %d records of rows that are no longer asked for", dataset.name, audit.strangers)
    return audit


def _left_out(audit: Audit, folder: Path, max_tokens: int) -> int:
    """Rows that the workers say they left out; each must have filled its part of the cap."""
    notes = read_left_out(folder)
    filled = sum(note.share.of_tokens(max_tokens) for note in notes)
    if audit.tally.completion_tokens < filled:
        audit.fault(
            f"rows were left out by maxTokens, which takes {filled} tokens, "
            f"but the answers have {audit.tally.completion_tokens}"
        )
    return sum(note.rows for note in notes)


def _check(audits: list[Audit]) -> None:
    """Refuses a result with faults, or whose kinds of rows do not add up to the total."""
    for audit in audits:
        tally = audit.tally
        if tally.accounted != tally.total:
            audit.fault(f"{tally.accounted} rows are accounted for, the source has {tally.total}")
    sentences = [f"{audit.tally.name}: {sentence}" for audit in audits for sentence in audit.faults]
    if sentences:
        count = sum(audit.fault_count for audit in audits)
        raise JobRefusedError(
            "AccountingMismatch", f"{count} things are wrong with the answers: {'; '.join(sentences[:5])}"
        )


def _summary(config: SynthJobConfig, audits: list[Audit], prompts: list[PromptIndex]) -> Summary:
    datasets = [audit.tally.progress() for audit in audits]
    counts = sum_counts(datasets)
    mean = counts["completion_tokens"] // counts["done"] if counts["done"] else None
    is_auto = config.generation.concurrency == AUTO
    chosen = read_chosen(Path(config.output.path)) if is_auto else None
    return Summary(
        run=config.run,
        progress=RunProgress(**counts, average_completion_tokens=mean, concurrency=chosen),
        datasets=datasets,
        finish_reasons=_sum(audit.tally.finish_reasons for audit in audits),
        statuses=_sum(audit.tally.statuses for audit in audits),
        dead_letter_reasons=_sum(audit.failures.counts for audit in audits),
        filtered={audit.tally.name: index.filtered for audit, index in zip(audits, prompts, strict=True)},
        accounted=all(
            not audit.fault_count and audit.tally.accounted == audit.tally.total for audit in audits
        ),
        quality=[audit.quality.result(audit.tally.name) for audit in audits],
        length_bias=[audit.bias.comparison(audit.tally.name) for audit in audits],
    )


def _manifest(
    config: SynthJobConfig,
    model: TargetModel,
    datasets: list[DatasetSettings],
    prompts: list[PromptIndex],
    audits: list[Audit],
) -> Manifest:
    return Manifest(
        made_by=f"draftmill {version('draftmill')}",
        run=config.run,
        model=model.facts,
        model_name=model.name,
        tokenizer_sha256=tokenizer_hash(Path(config.model.path)),
        chat_template_sha256=model.tokenizer.template_hash,
        datasets=[
            ManifestDataset(
                name=dataset.name,
                source=describe_source(dataset, index),
                sampling=sampling_facts(dataset.sampling),
                chat_template_kwargs=dataset.chat_template_kwargs,
                max_tokens=dataset.max_tokens,
                files=audit.files,
                dead_letters=audit.dead_letters,
            )
            for dataset, index, audit in zip(datasets, prompts, audits, strict=True)
        ],
        records=sum(audit.tally.done for audit in audits),
        completion_tokens=sum(audit.tally.completion_tokens for audit in audits),
        strangers=sum(audit.strangers for audit in audits),
    )


def most_frequent_failures(audits: list[Audit]) -> list[Failure]:
    """The most frequent reasons over all datasets, as many as a status has, with one row each."""
    together = FailureTally()
    for audit in audits:
        together.update(audit.failures)
    return together.most_common(MOST_FAILURES)


K = TypeVar("K", bound=str)


def _sum(counters: Iterable[Counter[K]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update({str(name): count for name, count in counter.items()})
    return dict(sorted(total.items()))
