"""The end of an ExtractRun: reads the whole store again and counts it against the records."""

from __future__ import annotations

import hashlib
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
from draftmill_api.manifest import PartFile
from draftmill_api.store import (
    Float8Error,
    RowSelection,
    StoreLine,
    StoreManifest,
    StoreShard,
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
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store.folder import INDEX_FILE, check_same, index_parts, read_store_file
from draftmill_jobs.store.index import write_index
from draftmill_jobs.store.layout import StateLayout
from draftmill_jobs.store.reader import Check, Store
from draftmill_jobs.store.verify import REMEDY, by_shard, check_sealed, hash_faults

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
        raise JobRefusedError("OutputMissing", f"{folder} has no store.json: nothing was extracted there")
    check_same(folder, bound.binding, prepared.binding)
    lines = write_index(folder)
    shards = _read_shards(folder, lines, prepared.layout)
    given_up = read_quarantine(folder, config.run)
    account = _account(config, prepared, lines, given_up)
    stored = Stored(lines, shards)
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
class Stored:
    """What the store holds."""

    lines: Sequence[StoreLine]
    shards: Sequence[StoreShard]

    @property
    def tokens(self) -> int:
        """Of all rows."""
        return sum(line.tokens for line in self.lines)

    @property
    def bytes(self) -> int:
        """Of all shards."""
        return sum(shard.bytes for shard in self.shards)


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
                f"{len(self.faults)} things are wrong with the store: {'; '.join(self.faults[:_SHOWN])}",
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


def _read_shards(folder: Path, lines: Sequence[StoreLine], layout: StateLayout) -> list[StoreShard]:
    """Reads every shard once: the hashes of its rows are checked, and its own is taken."""
    check_sealed(folder, index_parts(folder), layout)
    Store.open(folder, check=Check.HEADERS).close()
    shards = []
    for name, rows in by_shard(lines).items():
        path, digest = folder / name, hashlib.sha256()
        faults = list(hash_faults(path, rows, layout, seen=digest.update))
        if faults:
            raise JobRefusedError(
                "StoreCorrupt", f"{len(faults)} rows are broken: {'; '.join(faults[:_SHOWN])}; {REMEDY}"
            )
        shards.append(
            StoreShard(
                path=name,
                bytes=path.stat().st_size,
                records=len(rows),
                sha256=digest.hexdigest(),
                tokens=sum(row.tokens for row in rows),
            )
        )
        log.info("shard %s: %d rows, all as they were written", name, len(rows))
    return shards


def _summary(config: ExtractJobConfig, stored: Stored, account: Account) -> ExtractSummary:
    return ExtractSummary(
        run=config.run,
        rows=len(stored.lines),
        tokens=stored.tokens,
        bytes=stored.bytes,
        skipped=account.survey.skipped,
        cut_rows=account.survey.cut_rows,
        cut_tokens=account.survey.cut_tokens,
        quarantined=_by_reason(account.quarantined),
        accounted=not account.faults,
    )


def _manifest(
    config: ExtractJobConfig, model: TargetModel, prepared: Prepared, stored: Stored, account: Account
) -> StoreManifest:
    index = prepared.folder / INDEX_FILE
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
        rows=len(stored.lines),
        tokens=stored.tokens,
        bytes=stored.bytes,
        cut_rows=account.survey.cut_rows,
        cut_tokens=account.survey.cut_tokens,
        skipped=account.survey.skipped,
        quarantined=_by_reason(account.quarantined),
        index=PartFile(
            path=INDEX_FILE,
            bytes=index.stat().st_size,
            records=len(stored.lines),
            sha256=sha256_of(index),
        ),
        shards=list(stored.shards),
        float8_error=_float8_error(stored.lines),
    )


def _by_reason(rows: Sequence[QuarantinedRow]) -> dict[str, int]:
    return dict(sorted(Counter(row.reason for row in rows).items()))


def _float8_error(lines: Sequence[StoreLine]) -> Float8Error | None:
    """Over all (token, layer): rows count by their tokens."""
    errors = [(line.tokens, line.float8_error) for line in lines if line.float8_error is not None]
    if not errors:
        return None
    tokens = sum(count for count, _ in errors)
    return Float8Error(
        mean=sum(count * error.mean for count, error in errors) / tokens,
        worst=max(error.worst for _, error in errors),
    )
