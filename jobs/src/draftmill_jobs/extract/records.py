"""Reading the records of a SynthRun: which files, which rows, and one row's tokens."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from draftmill_api.extractjob import JobRecords
from draftmill_api.manifest import Manifest, PartFile
from draftmill_api.record import RecordStatus, conversation_key
from draftmill_api.store import RowFacts
from draftmill_api.v1alpha1.status import ModelFacts
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.extract.selection import LeftOut, Rules
from draftmill_jobs.shared.files import sha256_of
from draftmill_jobs.shared.parts import RECORDS, part_paths, read_lines

log = logging.getLogger(__name__)

_KEY_BYTES: Final = 16  # of the hash under which a row is remembered: two of 10^9 rows never meet


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """The files of the records, in the order in which they are read.

    Attributes:
        listed: What the manifest says of each; empty without one.
        sha256: Of the manifest; empty without one.
    """

    folder: Path
    paths: tuple[Path, ...]
    listed: tuple[PartFile, ...] = ()
    sha256: str = ""

    def content_hash(self) -> str:
        """The identity of the input, for which every file is read.

        Raises:
            JobRefusedError: A file is not the one that the manifest lists.
        """
        digest = hashlib.sha256()
        for path, part in zip(self.paths, self.listed or (None,) * len(self.paths), strict=True):
            found = sha256_of(path)
            if part is not None and part.sha256 != found:
                raise _corrupt(f"{path} has sha256 {found}, and the manifest lists {part.sha256}")
            digest.update(f"{path.relative_to(self.folder).as_posix()} {found}\n".encode())
        return self.sha256 or digest.hexdigest()


def find_files(records: JobRecords, model: ModelFacts) -> RecordFiles:
    """The files that the manifest lists, or all there are.

    Raises:
        JobRefusedError: There are none, or the manifest is another one, or of another model or files.
    """
    folder = Path(records.path)
    if records.model_fingerprint not in (None, model.fingerprint):
        raise _other_model(f"what {folder} holds", str(records.model_fingerprint), model)
    path = Path(records.manifest) if records.manifest is not None else folder / "manifest.json"
    if records.manifest is None and not path.exists():
        found = sorted({part for each in folder.glob("*/") for part in part_paths(each, RECORDS)})
        if not found:
            raise JobRefusedError(
                "InputNotFound",
                f"{folder} has no records: no {RECORDS}*.jsonl in any of its folders; give the output.path "
                "of a SynthRun",
            )
        return RecordFiles(folder, tuple(found))
    digest, manifest = _read_manifest(path)
    if records.manifest_sha256 not in (None, digest):
        raise JobRefusedError(
            "InputChanged",
            f"{path} has sha256 {digest}; this run is bound to {records.manifest_sha256}; restore that "
            "one, or create the run anew, with another output.path",
        )
    if manifest.model.fingerprint != model.fingerprint:
        raise _other_model(str(path), manifest.model.fingerprint, model)
    parts = tuple(part for dataset in manifest.datasets for part in dataset.files)
    paths = tuple(path.parent / part.path for part in parts)
    for each, part in zip(paths, parts, strict=True):
        if not each.is_file() or each.stat().st_size != part.bytes:
            raise _corrupt(f"{each} is not the file of {part.bytes} bytes that {path} lists")
    return RecordFiles(path.parent, paths, parts, digest)


@dataclass(frozen=True, slots=True)
class Row:
    """A row to extract.

    Attributes:
        token_ids: `int32[T]`: prompt and answer, after the cut.
        loss_mask: `uint8[T]`: 0 on the prompt, 1 on the answer.
    """

    facts: RowFacts
    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.token_ids)

    def __str__(self) -> str:
        return f"{self.facts.dataset}/{self.facts.id}"


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """One record, judged.

    Attributes:
        place: In its file, as `lines.read_line_at` takes it.
        tokens: Of prompt and answer, before any cut.
        row: None when it is left out.
    """

    file: int
    place: int
    tokens: int
    kept: int | LeftOut
    row: Row | None


def read_records(files: RecordFiles, rules: Rules, model: ModelFacts) -> Iterator[FoundRecord]:
    """Judges every record, each (dataset, id) once: the first of them.

    Holds some 80 bytes for each record.

    Raises:
        JobRefusedError: A record lacks token ids, or is of another model or vocabulary.
    """
    seen: set[bytes] = set()
    repeated = 0
    for number, path in enumerate(files.paths):
        for line in read_lines(path):
            found = judge(line.value, rules, model, where=f"{path}, row {line.value['id']}")
            key = f"{line.value['dataset']}/{line.value['id']}".encode()
            known = hashlib.blake2b(key, digest_size=_KEY_BYTES).digest()
            if known in seen:
                repeated += 1
                continue
            seen.add(known)
            yield FoundRecord(number, line.place, *found)
    if repeated:
        log.warning("%d records have the id of an earlier one and are left out", repeated)


def judge(
    record: dict[str, Any], rules: Rules, model: ModelFacts, *, where: str
) -> tuple[int, int | LeftOut, Row | None]:
    """A record's tokens, how many of them are kept, and the row that they make.

    Raises:
        JobRefusedError: It cannot be used at all.
    """
    try:
        prompt = _ids(record, "prompt_ids", "prompt_tokens", model, where)
        output = _ids(record, "output_ids", "completion_tokens", model, where)
        fingerprint = record["model"]["fingerprint"]
        if fingerprint != model.fingerprint:
            raise _other_model(where, fingerprint, model)
        status = RecordStatus(record["status"])
        tokens = len(prompt) + len(output)
        kept = rules.kept_tokens(status, len(prompt), tokens)
        if isinstance(kept, LeftOut):
            return tokens, kept, None
        facts = RowFacts(
            dataset=record["dataset"],
            id=record["id"],
            prompt_key=record["prompt_key"],
            conversation=conversation_key(
                record["id"], record["messages"], record["tools"], record["chat_template_kwargs"]
            ),
            turn=record["turn"],
            prompt_tokens=len(prompt),
            status=status,
            temperature=record["sampling"].get("temperature"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(f"{where}: it is no record of a SynthRun: {_words(error)}") from error
    ids = np.concatenate((prompt, output))[:kept]
    mask = np.ones(kept, np.uint8)
    mask[: len(prompt)] = 0
    return tokens, kept, Row(facts, ids, mask)


def _ids(record: dict[str, Any], field: str, count: str, model: ModelFacts, where: str) -> NDArray[np.int32]:
    value = record.get(field)
    ids = np.asarray(value if isinstance(value, list) else [], dtype=None if value else np.int64)
    if not isinstance(value, list) or ids.ndim != 1 or ids.dtype.kind != "i":
        raise _unusable(f"{where}: it has no {field}, the server's own token ids: states need the exact ones")
    if record.get(count) != len(ids):
        raise _unusable(f"{where}: it has {len(ids)} {field} and states {record.get(count)} {count}")
    if len(ids) and not (ids.min() >= 0 and ids.max() < model.vocabulary_size):
        bad = ids[(ids < 0) | (ids >= model.vocabulary_size)][0]
        raise _unusable(f"{where}: {field} has {bad}, and the model's vocabulary {model.vocabulary_size} ids")
    return ids.astype(np.int32)


def _read_manifest(path: Path) -> tuple[str, Manifest]:
    try:
        content = path.read_bytes()
        return hashlib.sha256(content).hexdigest(), Manifest.model_validate_json(content)
    except OSError as error:
        raise JobRefusedError(
            "InputNotFound",
            f"cannot read {path}: {error.strerror}; restore it where its SynthRun left it, or run that again",
        ) from error
    except ValidationError as error:
        raise _corrupt(f"{path} is no manifest of a SynthRun: {_words(error)}") from error


def _other_model(what: str, fingerprint: str, model: ModelFacts) -> JobRefusedError:
    return JobRefusedError(
        "ModelMismatch",
        f"{what} is of a model or tokenizer with fingerprint {fingerprint}; that of model.path is "
        f"{model.fingerprint}: states are for the model that gave the answers; give that one as model.path",
    )


def _unusable(sentence: str) -> JobRefusedError:
    remedy = "have its prompt answered by a SynthRun of this model, or take the row out"
    return JobRefusedError("InputUnusable", f"{sentence}; {remedy}")


def _corrupt(sentence: str) -> JobRefusedError:
    remedy = "restore what its SynthRun wrote, or run that again; `draftmill check` says more"
    return JobRefusedError("InputCorrupt", f"{sentence}; {remedy}")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"
