"""Single tensors out of a model's folder of safetensors files, without loading the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

_INDEX: Final = "model.safetensors.index.json"


class TensorFolderError(ValueError):
    """A folder that lacks a tensor or whose files cannot be read."""


class TensorFolder:
    """The tensors of a folder, by name.

    Raises:
        TensorFolderError: There are no safetensors files, or one is not whole.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = dict(self._find())

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def read(self, name: str) -> Tensor:
        """One tensor, as it is stored.

        Raises:
            TensorFolderError: There is none of that name.
        """
        with self._opened(name) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, without reading it.

        Raises:
            TensorFolderError: There is none of that name.
        """
        with self._opened(name) as file:
            return tuple(file.get_slice(name).get_shape())

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        if name not in self._files:
            raise TensorFolderError(f"{self._folder} has no tensor {name}")
        path = self._files[name]
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except (OSError, SafetensorError) as error:
            raise TensorFolderError(f"{path}, which should have {name}, cannot be read: {error}") from error

    def _find(self) -> Iterator[tuple[str, Path]]:
        index = self._folder / _INDEX
        if index.is_file():
            try:
                for name, file in json.loads(index.read_text())["weight_map"].items():
                    yield name, self._folder / file
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise TensorFolderError(f"{index} is no index of safetensors files: {error!r}") from error
            return
        files = sorted(self._folder.glob("*.safetensors"))
        if not files:
            raise TensorFolderError(f"{self._folder} has no safetensors files")
        for path in files:
            try:
                with safe_open(path, framework="pt") as file:
                    yield from ((name, path) for name in file.keys())  # noqa: SIM118 - not a mapping
            except (OSError, SafetensorError) as error:
                raise TensorFolderError(f"{path} is not a whole safetensors file: {error}") from error
