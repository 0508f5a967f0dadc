"""Jobs at work, for seconds: whole workers, programs that are killed, and all that computes with torch."""

from __future__ import annotations

import importlib.util
import os

import pytest

from tests.support.job_fixtures import job, model, models, server

__all__ = ["job", "model", "models", "server"]

# torch's: tests run several at a time, and its threads wait busily
os.environ.setdefault("OMP_NUM_THREADS", "1")

if importlib.util.find_spec("torch") is None:
    raise pytest.UsageError("tests/unit hides torch, which tests/jobs needs: run them apart")
