"""What users of other trainers and of their tools for hidden states reported: shown not to happen here.

The numbers are those of the project's list, which has gaps. Where each is proven:

| | failure elsewhere | proven in |
|---|---|---|
| 1 | default layers are taken for ids that are missing | tests/unit/jobs/test_extract_layers |
| 1 | an export has no layer ids | tests/jobs/test_train_export |
| 2 | layer ids are off by one | tests/jobs/test_extract_transformers |
| 3 | the last state is of the layer before the last | tests/jobs/test_extract_teacher |
| 4 | the last layer's id is dropped | tests/jobs/extract_vllm/test_extract_preflight |
| 6 | states are all zero | tests/jobs/extract_vllm/test_extract_rows |
| 8 | states are NaN or infinite | tests/jobs/extract_vllm/test_extract_rows |
| 10 | a flag of the drafter's config is lost | tests/jobs/test_train_export |
| 11 | states are incomplete beside those of other rows | tests/jobs/extract_vllm/test_extract_preflight |
| 12 | a warm start has a new draft vocabulary | tests/jobs/test_train_loop |
| 14 | the draft vocabulary has another size than was asked for | tests/unit/jobs/test_train_vocabulary |
| 15 | d2t is left out of the export | tests/jobs/test_train_export |
| 17 | the width of a multimodal model is read from the wrong place | tests/unit/jobs/test_extract_plan |
| 17 | so are its embeddings, norm and head | tests/jobs/test_train_target |
| 19 | the loss mask is one position off | tests/jobs/test_train_step |
| 20 | reasoning of earlier turns is trained as empty | tests/unit/jobs/test_generate_turns |
| 21 | thoughts that a template left empty are trained | tests/unit/jobs/test_extract_input |
| 23 | padding on the left is masked wrongly | tests/jobs/test_train_step |
| 24 | where an answer begins is found by rendering again | tests/unit/jobs/test_extract_input |
| 25 | a model's slow tokenizer is asked for offsets, or converted | tests/unit/jobs/test_own_tokenizer |
| 26 | packed rows see each other | tests/jobs/test_train_step |
| 27 | a long row is cut in one part and not in the others | tests/jobs/extract_vllm/test_extract_rows |
| 28 | a truncated file counts as done | tests/unit/jobs/test_store_resume |
| 30 | a trainer is killed while it saves | tests/jobs/test_train_loop |
| 32 | rows are packed otherwise after a resume | tests/jobs/test_train_packing |
| 33 | rows are known by a number that another order changes | tests/jobs/extract_vllm/test_extract_rows |
| 34 | many rows fail, and the run ends well | tests/jobs/extract_vllm/test_extract_rows |
| 35 | the loss is computed in bfloat16 | tests/jobs/test_train_step |
| 36 | the loss takes all memory at a large vocabulary | tests/jobs/test_train_losses |
| 37 | the disk is full after a day | tests/unit/jobs/test_extract_plan |
| 38 | nothing is accepted, and nobody can tell why | tests/jobs/test_doctor |
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
