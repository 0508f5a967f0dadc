"""vLLM's hidden-state connector for servers on CPU; the stock one copies by CUDA streams and pinned memory.

    --kv-transfer-config '{"kv_connector": "CpuHiddenStatesConnector",
                           "kv_connector_module_path": "draftmill_cpu_connector", "kv_role": "kv_producer",
                           "kv_connector_extra_config": {"shared_storage_path": "/staging"}}'

The folder of this file must be on the server's PYTHONPATH. Requests, files and locks are as of the stock one.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
)


class _Copied:
    """In place of a CUDA event: on CPU a copy is complete when the call returns."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):  # type: ignore[misc]
    """Copies a finished request's states out of the cache at once; a thread writes them."""

    def _submit_async_write(self, pending: PendingSave) -> None:
        if not self._is_tp_rank_zero:
            return
        tensors = {"hidden_states": self._states_of(pending), "token_ids": pending.token_ids.clone()}
        copied = _Copied()
        writing = self._executor.submit(
            self._write_tensors, tensors, copied, pending.filename, self._lock_for(pending)
        )
        self._req_copy_events[pending.req_id] = copied
        self._req_futures[pending.req_id] = writing
        writing.add_done_callback(partial(self._on_write_done, pending.req_id))

    def _states_of(self, pending: PendingSave) -> torch.Tensor:
        """[T, states, hidden]; the cache is [blocks, states, block_size, hidden]."""
        positions = torch.arange(len(pending.token_ids))
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)[positions // self._block_size]
        cache: torch.Tensor = self._kv_cache
        return cache[blocks, :, positions % self._block_size].contiguous()

    def _lock_for(self, pending: PendingSave) -> Any:
        """The descriptor of the lock that was taken when the request came."""
        descriptor = self._lock_fds.pop(pending.req_id, None)
        if descriptor is None and self.use_lock:
            Path(pending.filename).parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(f"{pending.filename}.lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor
