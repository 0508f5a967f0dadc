"""The target's next-token distribution, rebuilt from its last state by final norm and lm_head."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from draftmill_jobs.train.losses import chunks
from draftmill_jobs.train.products import product
from draftmill_jobs.train.target import TargetTensors
from draftmill_jobs.train.vocabulary import DraftVocabulary

_COLUMNS: Final = 1 << 14  # of lm_head at a time, when all of them are asked


class Teacher:
    """Final norm and lm_head of the target, on one device.

    Args:
        target: Its tensors.
        vocabulary: What the drafter can say: only these rows of lm_head enter the loss.
        device: Where the training runs.
        dtype: In which lm_head is multiplied.
    """

    def __init__(
        self, target: TargetTensors, vocabulary: DraftVocabulary, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._norm = target.norm.to(device, torch.promote_types(dtype, torch.float32))
        self._eps, self._dtype = target.norm_eps, dtype
        self._head = target.head
        self._rows = target.head[torch.from_numpy(vocabulary.target_ids)].to(device, dtype)  # [DV, H]

    @torch.no_grad()
    def log_probabilities(self, last: Tensor) -> Tensor:
        """Log-probabilities over the draft vocabulary alone, at least float32 `[J, DV]`.

        Args:
            last: `[J, H]`, last states before the final norm.
        """
        normed = self._normed(last)
        found = torch.empty(len(last), len(self._rows), dtype=self._norm.dtype, device=last.device)
        for part in chunks(len(last), len(self._rows)):
            logits = product(normed[part], self._rows.T).to(found.dtype)
            torch.log_softmax(logits, -1, out=found[part])
        return found

    @torch.no_grad()
    def choices(self, last: Tensor) -> Tensor:
        """The target's own next tokens, int64[J]: argmax over all its ids, the lower among equals.

        lm_head passes through the device in pieces, so `[J, V]` never exists.
        """
        last = last.to(self._norm.device)
        normed = self._normed(last)
        best = torch.full((len(last),), float("-inf"), dtype=self._norm.dtype, device=last.device)
        found = torch.zeros(len(last), dtype=torch.int64, device=last.device)
        for start in range(0, len(self._head), _COLUMNS):
            columns = self._head[start : start + _COLUMNS].to(last.device, self._dtype)
            for part in chunks(len(last), len(columns)):
                logits, ids = product(normed[part], columns.T).to(best.dtype).max(-1)
                better = logits > best[part]
                best[part] = torch.where(better, logits, best[part])
                found[part] = torch.where(better, ids + start, found[part])
        return found

    def _normed(self, last: Tensor) -> Tensor:
        last = last.to(self._norm.dtype)
        return functional.rms_norm(last, (last.shape[-1],), self._norm, self._eps).to(self._dtype)
