"""Services that take figures of a training, and what becomes of the training when they do not."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.tracking import Careful, open_trackers


class Failing:
    """Takes one figure, and then is gone."""

    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, float], int, float]] = []

    def add(self, scalars: Mapping[str, float], *, step: int, now: float) -> None:
        if self.taken:
            raise ConnectionError("the service is gone")
        self.taken.append((dict(scalars), step, now))

    def close(self) -> None:
        raise AssertionError("it was left alone")


def test_a_service_that_is_gone_is_named_once_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    service = Failing()
    careful = Careful("MLflow", lambda: service)
    with caplog.at_level(logging.WARNING):
        for step in range(4):
            careful.add({"loss/0": 1.0}, step=step, now=0.0)
        careful.close()

    assert service.taken == [({"loss/0": 1.0}, 0, 0.0)]
    assert [record.getMessage() for record in caplog.records] == [
        "MLflow takes no figures any more: the service is gone"
    ]


def test_without_their_variables_there_is_an_event_file_alone(tmp_path: Path) -> None:
    events, services = open_trackers(tmp_path, "run", {}, 1.0)
    events.close()

    assert services == []
    assert events.path.parent == tmp_path / "tensorboard"


@pytest.mark.parametrize(
    ("library", "variable"), [("mlflow", "MLFLOW_TRACKING_URI"), ("wandb", "WANDB_API_KEY")]
)
def test_a_service_whose_library_is_missing_is_a_refusal(tmp_path: Path, library: str, variable: str) -> None:
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    with pytest.raises(JobRefusedError, match=f"{variable}.* is set, and {library} is not installed"):
        open_trackers(tmp_path, "run", {variable: "x"}, 1.0)
