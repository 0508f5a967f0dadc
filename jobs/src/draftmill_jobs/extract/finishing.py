"""The end of an ExtractRun: reads the whole store again and counts it against the records."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from draftmill_api.extractjob import (
    ExtractFinishResult,
    ExtractJobConfig,
    ExtractSummary,
    QuarantinedRow,
)
from draftmill_api.store import (
    RowSelection,
    StoreLine,
    StoreManifest,
    StoreSource,
)
from draftmill_api.v1alpha1.status import MOST_FAILURES
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.planning import check_usable
from draftmill_jobs.extract.preparing import Prepared, prepare
from draftmill_jobs.extract.quarantine import check_share, failures, read_quarantine
from draftmill_jobs.extract.records import Row
from draftmill_jobs.extract.selection import Survey
from draftmill_jobs.model.facts import TargetModel, read_model
from draftmill_jobs.model.fingerprint import tokenizer_hash
from draftmill_jobs.shared.artefacts import MANIFEST_FILE, SUMMARY_FILE, below_volume, write_json
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store.audit import StoreAudit, count_store
from draftmill_jobs.store.folder import check_same, read_store_file
from draftmill_jobs.store.index import write_index
from draftmill_jobs.store.reader import Check, Store
from draftmill_jobs.store.verify import REMEDY

log = logging.getLogger(__name__)

_WHOLE: Final = Share(0, 1)
_SHOWN: Final = 3  # faults that are told; the rest are counted


def finish(config: ExtractJobConfig) -> ExtractFinishResult:
    """Checks a run's store; writes `index.jsonl`, `summary.json` and, when all is right, `manifest.json`.

    Raises:
        JobRefusedError: A row is missing, twice, another one or broken, or too many are quarantined.
    """
    model = read_model(config.model)
    prepared = prepare(config, model.facts)
    folder = prepared.folder
    bound = read_store_file(folder)
    if bound is None:
        raise JobRefusedError(
            "OutputMissing",
            f"{folder} has no store.json: nothing was extracted there; run `draftmill extract` before",
        )
    check_same(folder, bound.binding, prepared.binding)
    write_index(folder)
    stored = _looked_at(folder)
    given_up = read_quarantine(folder, config.run)
    account = _account(config, prepared, stored.rows, given_up)
    summary = _summary(config, stored, account)
    write_json(folder / SUMMARY_FILE, summary)
    account.check()
    check_share(account.quarantined, account.survey.rows)
    manifest = _manifest(config, model, prepared, stored, account)
    digest = write_json(folder / MANIFEST_FILE, manifest)
    return ExtractFinishResult(
        rows=summary.rows,
        tokens=summary.tokens,
        bytes=summary.bytes,
        quarantined=len(account.quarantined),
        manifest=below_volume(folder / MANIFEST_FILE),
        manifest_sha256=digest,
        failures=failures(account.quarantined, MOST_FAILURES),
    )


@dataclass(frozen=True, slots=True)
class Account:
    """The records against store and quarantine.

    Attributes:
        quarantined: Rows of the records that were given up, and have no states.
        faults: What does not agree, in sentences.
    """

    survey: Survey
    quarantined: Sequence[QuarantinedRow]
    faults: Sequence[str]

    def check(self) -> None:
        """Refuses a store that is not the records'.

        Raises:
            JobRefusedError: Something does not agree.
        """
        if self.faults:
            raise JobRefusedError(
                "AccountingMismatch",
                f"{len(self.faults)} things are wrong with the store: {'; '.join(self.faults[:_SHOWN])}; "
                "run the extractor again, which asks for rows that are missing",
            )


def _account(
    config: ExtractJobConfig,
    prepared: Prepared,
    lines: Sequence[StoreLine],
    given_up: Mapping[tuple[str, str], QuarantinedRow],
) -> Account:
    """Looks every record's row up in the store, tokens and all."""
    faults: list[str] = []
    quarantined: list[QuarantinedRow] = []
    with Store.open(prepared.folder, check=Check.HEADERS) as store:
        places = {line.key: place for place, line in enumerate(store.lines)}

        def look_up(row: Row) -> bool:
            place = places.pop(row.facts.key, None)
            if place is not None:
                stored = store[place]
                is_same = np.array_equal(stored.token_ids, row.token_ids)
                if not is_same or not np.array_equal(stored.loss_mask, row.loss_mask):
                    faults.append(f"row {row} has other token ids or another loss mask than its record")
            elif row.facts.key in given_up:
                quarantined.append(given_up[row.facts.key])
            else:
                faults.append(f"row {row} is neither in the store nor in the quarantine")
            return True

        survey, _ = prepared.input.survey(config.max_rows, share=_WHOLE, is_done=look_up)
        check_usable(survey, prepared)
        faults += [
            f"row {dataset}/{identity} is in the store and not among the rows that this run selects; choose "
            "another output.path"
            for dataset, identity in places
        ]
    if len(lines) + len(quarantined) != survey.rows and not faults:
        faults.append(f"{len(lines)} rows stored and {len(quarantined)} quarantined are not {survey.rows}")
    return Account(survey, quarantined, faults)


def _looked_at(folder: Path) -> StoreAudit:
    """Reads every shard once: the hashes of its rows are checked, and its own is taken.

    Raises:
        JobRefusedError: Something is broken.
    """
    audit = count_store(folder)
    if audit.faults:
        raise JobRefusedError(
            "StoreCorrupt",
            f"{len(audit.faults)} things are broken in {folder}: {'; '.join(audit.faults[:_SHOWN])}; "
            f"{REMEDY}",
        )
    log.info("%d rows in %d shards, all as they were written", len(audit.rows), len(audit.shards))
    if len(audit.computed_in) > 1:
        ways = ", ".join(f"{dtype} {count}" for dtype, count in audit.computed_in.items())
        log.warning("the states were not all computed in one dtype: rows by it: %s", ways)
    return audit


def _summary(config: ExtractJobConfig, stored: StoreAudit, account: Account) -> ExtractSummary:
    return ExtractSummary(
        run=config.run,
        rows=len(stored.rows),
        tokens=stored.tokens,
        bytes=stored.bytes,
        skipped=account.survey.skipped,
        cut_rows=account.survey.cut_rows,
        cut_tokens=account.survey.cut_tokens,
        quarantined=_by_reason(account.quarantined),
        accounted=not account.faults,
    )


def _manifest(
    config: ExtractJobConfig, model: TargetModel, prepared: Prepared, stored: StoreAudit, account: Account
) -> StoreManifest:
    assert stored.index is not None  # noqa: S101 - it was written before
    return StoreManifest(
        run=config.run,
        model=model.facts,
        model_name=model.name,
        tokenizer_sha256=tokenizer_hash(Path(config.model.path)),
        chat_template_sha256=model.tokenizer.template_hash,
        binding=prepared.binding,
        source=StoreSource(
            path=below_volume(prepared.input.files.folder), sha256=prepared.input.files.content_hash()
        ),
        selection=RowSelection(statuses=config.row_filter, max_rows=config.max_rows),
        rows=len(stored.rows),
        tokens=stored.tokens,
        bytes=stored.bytes,
        cut_rows=account.survey.cut_rows,
        cut_tokens=account.survey.cut_tokens,
        skipped=account.survey.skipped,
        quarantined=_by_reason(account.quarantined),
        computed_in=stored.computed_in,
        index=stored.index,
        shards=stored.shards,
        float8_error=stored.float8_error,
    )


def _by_reason(rows: Sequence[QuarantinedRow]) -> dict[str, int]:
    return dict(sorted(Counter(row.reason for row in rows).items()))
