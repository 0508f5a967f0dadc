"""ExtractRun objects, and what their jobs say."""

from __future__ import annotations

import copy

from draftmill_api.extractjob import ExtractFinishResult
from draftmill_api.progress import TerminationMessage, WorkerResult
from draftmill_api.v1alpha1.extractrun import ExtractPlan, ExtractProgress
from tests.support.played import FACTS
from tests.support.synthruns import Manifest

LAYERS = [2, 15, 27, 30]
_SPEC: Manifest = {
    "from": {"synthRun": {"name": "k25-10k"}},
    "server": {"engine": "VLLM", "image": "vllm/vllm-openai:v0.33.0"},
    "output": {"path": "states/k25"},
}


def smallest_extract_run(name: str) -> Manifest:
    """An ExtractRun with nothing but the fields that must be given."""
    return {
        "apiVersion": "draftmill.dev/v1alpha1",
        "kind": "ExtractRun",
        "metadata": {"name": name},
        "spec": copy.deepcopy(_SPEC),
    }


def extract_plan(rows: int, longest: int = 2000) -> ExtractPlan:
    """What a plan found in so many rows."""
    return ExtractPlan(
        model=FACTS,
        layer_ids=LAYERS,
        rows=rows,
        tokens=rows * 1000,
        longest_row=longest,
        state_bytes=rows * 1000 * 4 * 576 * 2,
        other_bytes=rows * 5000,
        bytes_free=1 << 40,
        input_sha256="b" * 64,
    )


def extract_progress(rows: int, total: int) -> ExtractProgress:
    """Progress with so many rows in the store."""
    size = rows * 4_608_000
    return ExtractProgress(rows=rows, total=total, tokens=rows * 1000, bytes=size, size=f"{size} B")


def extract_plan_message(rows: int) -> TerminationMessage:
    """The last words of a plan."""
    return TerminationMessage(extract_plan=extract_plan(rows))


def extract_worker_message(rows: int, total: int) -> TerminationMessage:
    """The last words of an extractor."""
    return TerminationMessage(worker=WorkerResult(extraction=extract_progress(rows, total)))


def extract_finish_message(rows: int) -> TerminationMessage:
    """The last words of a finish."""
    return TerminationMessage(
        extract_finish=ExtractFinishResult(
            rows=rows,
            tokens=rows * 1000,
            bytes=rows * 4_608_000,
            quarantined=0,
            manifest="/data/states/k25/manifest.json",
            manifest_sha256="c" * 64,
        )
    )
