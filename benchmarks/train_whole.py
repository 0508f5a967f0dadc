"""A whole training from a store on disk, in a process of its own: prints speed and data wait as JSON.

python benchmarks/train_whole.py --threads 2
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), *(str(REPOSITORY / tree / "src") for tree in ("api", "jobs"))]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from draftmill_api.record import RecordStatus  # noqa: E402
from draftmill_api.store import ComputedIn, RowFacts, StoreBinding, StoreSource  # noqa: E402
from draftmill_api.v1alpha1.extractstatus import StateDtype  # noqa: E402
from draftmill_api.v1alpha1.status import ModelFacts  # noqa: E402
from draftmill_jobs.main import main as draftmill  # noqa: E402
from draftmill_jobs.model.fingerprint import fingerprint  # noqa: E402
from draftmill_jobs.store import StoreRow, StoreWriter  # noqa: E402
from draftmill_jobs.train.tracking import EVENTS  # noqa: E402
from tests.support.event_reader import curve  # noqa: E402
from tests.support.states import ALONE, RUN  # noqa: E402
from tests.support.train_job import write_store_manifest  # noqa: E402

HIDDEN, VOCABULARY, LAYERS = 256, 2048, 8
LAYER_IDS = [2, 4, 5]
ROWS, EPOCHS = 300, 3


def write_target(folder: Path) -> None:
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 688,
        "num_attention_heads": 4,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    made = torch.Generator().manual_seed(0)
    tensors = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=made),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(VOCABULARY, HIDDEN, generator=made),
    }
    save_file(tensors, folder / "model.safetensors")


def write_store(folder: Path, target: Path) -> int:
    """Rows of 100 to 300 tokens; returns how many tokens they have."""
    facts = ModelFacts(
        fingerprint=fingerprint(target),
        architecture="LlamaForCausalLM",
        layers=LAYERS,
        hidden_size=HIDDEN,
        vocabulary_size=VOCABULARY,
        think_family="none",
    )
    binding = StoreBinding(
        model_fingerprint=facts.fingerprint,
        layer_ids=[*LAYER_IDS, LAYERS],
        hidden_size=HIDDEN,
        dtype=StateDtype.BFLOAT16,
    )
    made, tokens = np.random.default_rng(0), 0
    with StoreWriter(folder, binding, shard_bytes=1 << 28, run=RUN, share=ALONE) as writer:
        for number, length in enumerate(made.integers(100, 300, ROWS).tolist()):
            ids = made.integers(0, VOCABULARY, length).astype(np.int32)
            states = torch.randn(length, len(LAYER_IDS) + 1, HIDDEN).bfloat16().view(torch.uint16).numpy()
            row = RowFacts(
                dataset="d",
                id=str(number),
                prompt_key=f"prompt {number}",
                turn=0,
                prompt_tokens=20,
                status=RecordStatus.OK,
                temperature=0.0,
            )
            mask = (np.arange(length) >= 20).astype(np.uint8)
            writer.append(StoreRow(row, ids, mask, states, ids, ComputedIn.BFLOAT16), lambda: None)
            tokens += length
        writer.seal()
    write_store_manifest(folder, facts, source=StoreSource(path="records", sha256="r" * 64))
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_target(root / "target")
        tokens = write_store(root / "states", root / "target")
        config = {
            "run": {"kind": "DrafterTrain", "name": "bench"},
            "target": {"name": "bench", "path": str(root / "target")},
            "store": {"path": str(root / "states")},
            "output": {"path": str(root / "drafter")},
            "heldOutPercent": 0,
            "scratch": {"draftVocabSize": 512},
            "training": {
                "epochs": EPOCHS,
                "tttLength": 3,
                "tokensPerBatch": 2048,
                "precision": "Float32",
            },
        }
        (root / "job.yaml").write_text(json.dumps(config))
        began = time.monotonic()
        code = draftmill(["train", "--config", str(root / "job.yaml")])
        seconds = time.monotonic() - began
        assert code == 0, code
        waits = list(curve(root / "drafter" / EVENTS, "data_wait").values())
    print(json.dumps({"tokens_per_second": tokens * EPOCHS / seconds, "data_wait": sum(waits) / len(waits)}))


if __name__ == "__main__":
    main()
