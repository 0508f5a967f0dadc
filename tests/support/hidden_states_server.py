"""A real vLLM on CPU that writes hidden states, rows for it, and how far two stores are apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftmill_dev import model
from draftmill_jobs.main import main
from tests.support.extract_job import ExtractJob, make_record
from tests.support.vllm_server import serving_vllm

_TEXTS = ("README.md", "CONTRIBUTING.md", "LICENSE")

States = Mapping[str, NDArray[np.float32]]
"""Of each row `[T, states, hidden]`."""


class HiddenStatesServer(NamedTuple):
    """A server's address, and the folder that it writes to."""

    url: str
    staging: Path


@contextmanager
def serving(
    folder: Path, place: Path, *, dtype: str, layer_ids: Sequence[int], flags: Sequence[str] = ()
) -> Iterator[HiddenStatesServer]:
    """Runs a server that computes in a dtype.

    Args:
        folder: Of the model.
        place: Where its log and what it writes go.
        dtype: As vLLM names it.
        layer_ids: "Entering layer"; the last is the number of layers.
        flags: Further ones.
    """
    staging = place / "staging"
    assert main(["install-connector", "--to", str(place / "connector")]) == 0
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layer_ids)}},
    }
    transfer = {
        "kv_connector": "CpuHiddenStatesConnector",
        "kv_connector_module_path": "draftmill_cpu_connector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(staging)},
    }
    command = ["--dtype", dtype, *flags, "--no-enable-prefix-caching"]
    command += ["--speculative-config", json.dumps(speculative), "--kv-transfer-config", json.dumps(transfer)]
    ours = {"PYTHONPATH": str(place / "connector")}
    with serving_vllm(folder, command, place / "log", name=model.NAME, variables=ours) as url:
        yield HiddenStatesServer(url, staging)


def job_of(place: Path, folder: Path, *, rows: int = 20, **fields: Any) -> ExtractJob:
    """Rows of different lengths, from 8 tokens in steps of 10, cut from the repository's own pages."""
    from transformers import AutoTokenizer

    made = ExtractJob(place, folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    root = Path(__file__).parents[2]
    ids = [token for name in _TEXTS for token in tokenizer((root / name).read_text())["input_ids"]]
    start = 0
    for number in range(rows):
        prompt, output = 3 + number, 5 + 9 * number
        row = ids[start : start + prompt + output]
        start += prompt + output
        made.records.append(make_record(number, row[:prompt], row[prompt:], fingerprint=made.fingerprint))
    made.fields |= {"model": {"name": model.NAME, "path": str(folder)}, "layers": {"default": True}, **fields}
    return made


def by_server(server: HiddenStatesServer, **fields: Any) -> dict[str, Any]:
    """The fields of a config that asks a server."""
    endpoint = {"name": "s0", "url": server.url, "engine": "VLLM"}
    return {"backend": "VLLM", "staging": str(server.staging), "endpoints": [endpoint], **fields}


def run(made: ExtractJob) -> States:
    """Extracts, finishes, and returns what the store holds."""
    for step in ("extract", "finish"):
        assert main([step, "--config", str(made.write())]) == 0
    with made.store() as store:
        return {row.line.id: row.values().copy() for row in store}


def worst_error(states: States, reference: States) -> float:
    """Relative L2 of the worst (token, layer)."""
    assert states.keys() == reference.keys()
    return max(
        float((np.linalg.norm(states[row] - each, axis=-1) / np.linalg.norm(each, axis=-1)).max())
        for row, each in reference.items()
    )
