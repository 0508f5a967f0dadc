from __future__ import annotations

import pytest

from draftmill_dev.generate import outputs, stale


def test_committed_files_are_what_the_types_give() -> None:
    assert stale(outputs()) == [], "run `make generate` and commit"


@pytest.mark.parametrize("path", [path for path in outputs() if path.startswith("crds/")])
def test_a_crd_fits_into_the_annotation_of_client_side_apply(path: str) -> None:
    assert len(outputs()[path].encode()) < 150_000


def test_generating_twice_gives_the_same_bytes() -> None:
    assert outputs() == outputs()
