"""The identity of a model's folder, without reading its weights."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

_TEXT = {".json", ".jinja", ".model", ".tiktoken", ".txt", ".py"}
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf"}
_TOKENIZER_STEMS = (
    "tokenizer",
    "tokenization",
    "tiktoken",
    "vocab",
    "merges",
    "special_tokens",
    "added_tokens",
)
_NO_CONTENT = {"LICENSE.txt", "requirements.txt"}


def fingerprint(folder: Path) -> str:
    """sha256 over JSON and tokenizer files, and over names, sizes and safetensors headers of the weights.

    Neither weights' content nor file times enter, so 547 GB take seconds and a copy has the same fingerprint.
    """
    digest = hashlib.sha256()
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if path.suffix in _WEIGHTS:
            digest.update(f"weights {name} {path.stat().st_size}\n".encode())
            if path.suffix == ".safetensors":
                digest.update(_safetensors_header(path))
        elif path.suffix in _TEXT and path.name not in _NO_CONTENT:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"file {name} {content}\n".encode())
    return digest.hexdigest()


def tokenizer_hash(folder: Path) -> str:
    """sha256 over the names and contents of the tokenizer's files."""
    digest = hashlib.sha256()
    for path in _files(folder):
        if path.name.startswith(_TOKENIZER_STEMS):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    visible = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return sorted(visible, key=lambda path: path.relative_to(folder).as_posix())


def _safetensors_header(path: Path) -> bytes:
    """The JSON header of a safetensors file; its length stands in the first eight bytes, little-endian."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        return file.read(min(length, 100 << 20))
