"""Importing this hides torch from the process, as in the image of generator and extractor, which has none."""

from __future__ import annotations

from draftmill_jobs.shared.torchless import hide_torch

hide_torch()
