"""Records and their files, as a generator would have written them."""

from __future__ import annotations

from pathlib import Path

from draftmill_api.manifest import ManifestDataset, ManifestSource, PartFile
from draftmill_api.record import FinishReason, Record, RecordModel, RecordStatus, Think
from draftmill_api.v1alpha1.source import Fields, Filters


def key(number: int) -> str:
    """A prompt's key."""
    return f"{number:032x}"


def record(number: int, answer: str = "An answer.") -> Record:
    return Record(
        id=key(number),
        prompt_key=key(number),
        sample_id=number,
        dataset="B1_arithmetic",
        turn=0,
        sample=0,
        prompt_ids=[1, 2, 3],
        output_ids=[4, 2],
        prompt_tokens=3,
        completion_tokens=2,
        finish_reason=FinishReason.STOP,
        status=RecordStatus.OK,
        think=Think.NONE,
        messages=[{"role": "user", "content": "What is 2 + 2?"}],
        tools=None,
        chat_template_kwargs={},
        reasoning=None,
        content=answer,
        text=answer,
        sampling={"temperature": 0},
        model=RecordModel(name="smol", fingerprint="f"),
        server="server-0",
        attempt=1,
        created="2026-01-01T00:00:00Z",
        latency_s=1.5,
    )


def manifest_dataset(name: str, file: PartFile) -> ManifestDataset:
    """What a manifest says of a dataset with one file of records."""
    source = ManifestSource(
        hugging_face=None,
        files=[],
        fields=Fields(),
        filters=Filters(),
        shuffle_seed=None,
        max_samples=None,
        rows=file.records,
        filtered=0,
    )
    return ManifestDataset(
        name=name,
        source=source,
        sampling={},
        chat_template_kwargs={},
        max_tokens=None,
        files=[file],
        dead_letters=[],
    )


def write(file: Path, records: list[Record], torn: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(each.model_dump_json() + "\n" for each in records) + torn)
    return file
