"""Hidden states from a model of the transformers library, by hooks where a residual stream enters a layer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from draftmill_api.jobconfig import JobModel
from draftmill_api.store import ComputedIn
from draftmill_jobs.errors import JobRefusedError

log = logging.getLogger(__name__)

_EMBEDDINGS: Final = ("embed_tokens", "tok_embeddings", "word_embeddings")


_COMPUTED_IN: Final = {
    torch.bfloat16: ComputedIn.BFLOAT16,
    torch.float16: ComputedIn.FLOAT16,
    torch.float32: ComputedIn.FLOAT32,
}


class HookedModel:
    """A decoder whose residual streams are captured.

    Attributes:
        computed_in: The dtype of its residual streams.
    """

    def __init__(self, decoder: nn.Module, layer_ids: Sequence[int]) -> None:
        """Takes the part of a model that has the decoder layers.

        Args:
            decoder: As `find_decoder` finds it.
            layer_ids: Ascending, "entering layer"; the last is the number of layers.

        Raises:
            JobRefusedError: It computes in a dtype that no store has.
        """
        self._decoder = decoder
        self._layer_ids = tuple(layer_ids)
        layers: nn.ModuleList = decoder.layers  # type: ignore[assignment]
        norm: nn.Module = decoder.norm  # type: ignore[assignment]
        self._entered = [*(layers[each] for each in layer_ids[:-1]), norm]
        embeddings = next(decoder.parameters())
        self._device = embeddings.device
        if embeddings.dtype not in _COMPUTED_IN:
            raise JobRefusedError(
                "ModelNotUsable",
                f"the model's embeddings are {embeddings.dtype}, and its states would be of no dtype that "
                f"a store has ({', '.join(each.value for each in _COMPUTED_IN.values())}): use backend VLLM, "
                "or a model whose embeddings are of one of these",
            )
        self.computed_in = _COMPUTED_IN[embeddings.dtype]

    def states(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float32]]:
        """The states of each row, `float32[T, states, hidden]`.

        Rows are padded on the right and masked: no row's states depend on the others, but for rounding.
        """
        lengths = [len(row) for row in rows]
        ids = torch.zeros((len(rows), max(lengths)), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.from_numpy(row)
            mask[number, : len(row)] = 1
        with torch.inference_mode(), self._capturing() as captured:
            self._decoder(
                input_ids=ids.to(self._device), attention_mask=mask.to(self._device), use_cache=False
            )
            # Each [rows, longest, hidden], in the order of the ids.
            streams = [captured[number] for number in range(len(self._layer_ids))]
            return [
                torch.stack([stream[row, :length] for stream in streams], dim=1).float().cpu().numpy()
                for row, length in enumerate(lengths)
            ]

    @contextmanager
    def _capturing(self) -> Iterator[dict[int, torch.Tensor]]:
        captured: dict[int, torch.Tensor] = {}
        hooks = []
        for number, module in enumerate(self._entered):

            def capture(
                _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], at: int = number
            ) -> None:
                captured[at] = (args[0] if args else kwargs["hidden_states"]).detach()

            hooks.append(module.register_forward_pre_hook(capture, with_kwargs=True))
        try:
            yield captured
        finally:
            for hook in hooks:
                hook.remove()


def load_model(model: JobModel, *, layers: int, layer_ids: Sequence[int], gpus: int) -> HookedModel:
    """Loads a model.

    Args:
        model: Its folder.
        layers: How many it has.
        layer_ids: Ascending, "entering layer"; the last is `layers`.
        gpus: 0 computes on CPU, 1 on CUDA.

    Raises:
        JobRefusedError: There is no CUDA though it is asked for, or the model cannot be used.
    """
    if gpus and not torch.cuda.is_available():
        raise JobRefusedError(
            "NoGPU",
            f"gpus is {gpus}, and torch {torch.__version__} finds no CUDA device; give the extractor's pod a "
            "GPU and an image with CUDA, or set gpus to 0, which computes on CPU",
        )
    log.info("loading %s", model.path)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # logs are lines
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            Path(model.path),
            dtype="auto" if gpus else torch.float32,
            trust_remote_code=model.trust_remote_code,
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise JobRefusedError(
            "ModelNotUsable",
            f"transformers cannot load {model.path}: {str(error).splitlines()[0]}; use backend VLLM, or an "
            "image whose transformers knows the model",
        ) from error
    decoder = find_decoder(loaded, layers)
    if gpus:
        decoder = decoder.to("cuda")
    return HookedModel(decoder.eval(), layer_ids)


def find_decoder(model: nn.Module, layers: int) -> nn.Module:
    """The module that has embeddings, `layers` decoder layers and the final norm, wherever it is nested.

    Raises:
        JobRefusedError: There is none, or more than one.
    """
    found: list[nn.Module] = [
        module
        for _, module in model.named_modules()
        if isinstance(stack := getattr(module, "layers", None), nn.ModuleList)
        and len(stack) == layers
        and isinstance(getattr(module, "norm", None), nn.Module)
        and any(isinstance(getattr(module, name, None), nn.Module) for name in _EMBEDDINGS)
    ]
    if len(found) != 1:
        raise JobRefusedError(
            "ModelNotUsable",
            f"{type(model).__name__} has {len(found)} modules with embeddings, {layers} `layers` and "
            "a `norm`; backend Transformers needs exactly one, to know where residual streams are: use "
            "backend VLLM",
        )
    return found[0]
