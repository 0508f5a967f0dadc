"""What users of other tools for hidden states reported: each failure that can touch us is shown not to.

The numbers are those of the project's list, which has gaps: failures of vocabularies, masks and training are
listed in tests/jobs/test_train_parity. Where each of the others is proven:

| | failure elsewhere | proven in |
|---|---|---|
| 1 | default layers are taken for ids that are missing | tests/unit/jobs/test_extract_layers |
| 2 | layer ids are off by one | tests/jobs/test_extract_transformers |
| 3 | the last state is of the layer before the last | tests/jobs/test_extract_teacher |
| 4 | the last layer's id is dropped | tests/jobs/extract_vllm/test_extract_preflight |
| 6 | states are all zero | tests/jobs/extract_vllm/test_extract_rows |
| 8 | states are NaN or infinite | tests/jobs/extract_vllm/test_extract_rows |
| 11 | states are incomplete beside those of other rows | tests/jobs/extract_vllm/test_extract_preflight |
| 17 | the width of a multimodal model is read from the wrong place | tests/unit/jobs/test_extract_plan |
| 27 | a long row is cut in one part and not in the others | tests/jobs/extract_vllm/test_extract_rows |
| 28 | a truncated file counts as done | tests/unit/jobs/test_store_resume |
| 33 | rows are known by a number that another order changes | tests/jobs/extract_vllm/test_extract_rows |
| 34 | many rows fail, and the run ends well | tests/jobs/extract_vllm/test_extract_rows |
| 37 | the disk is full after a day | tests/unit/jobs/test_extract_plan |
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROVEN = re.findall(r"^\| (\d+) \| .* \| (\S+) \|$", __doc__ or "", re.MULTILINE)


@pytest.mark.parametrize(("number", "place"), PROVEN)
def test_each_failure_of_the_table_is_proven_where_it_says(number: str, place: str) -> None:
    assert f'"""Reported failure {number} (' in (ROOT / f"{place}.py").read_text()
