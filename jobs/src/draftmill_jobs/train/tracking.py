"""Where figures of a training go besides the log: event files; MLflow and W&B when their variables are set.

A tracker that cannot be reached costs figures and no training: it says so once, and is left alone.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.train.event_file import EventFile

log = logging.getLogger(__name__)

EVENTS: Final = "tensorboard"
_PROJECT: Final = "draftmill"


class Tracker(Protocol):
    """Takes scalars by step."""

    def add(self, scalars: Mapping[str, float], *, step: int, now: float) -> None:
        """Keeps scalars of one step, by their tags."""

    def close(self) -> None:
        """The training has ended."""


def open_trackers(
    output: Path, name: str, environment: Mapping[str, str], now: float
) -> tuple[EventFile, list[Tracker]]:
    """The event file, which takes every step, and the services, which take one every few seconds.

    Args:
        output: Folder of the training.
        name: Of the run.
        environment: Says which services there are.
        now: Seconds since 1970.

    Raises:
        JobRefusedError: A service is asked for whose library is not installed.
    """
    services: list[Tracker] = []
    if environment.get("MLFLOW_TRACKING_URI"):
        mlflow = _library("mlflow", "MLFLOW_TRACKING_URI")
        services.append(Careful("MLflow", lambda: MlflowTracker(mlflow, name, environment)))
    if environment.get("WANDB_API_KEY") or environment.get("WANDB_MODE"):
        wandb = _library("wandb", "WANDB_API_KEY or WANDB_MODE")
        services.append(Careful("W&B", lambda: WandbTracker(wandb, name, environment)))
    return EventFile(output / EVENTS, now), services


class Careful:
    """A tracker that may fail.

    Args:
        service: Its name.
        opening: Opens it.
    """

    def __init__(self, service: str, opening: Callable[[], Tracker]) -> None:
        self._service = service
        self._tracker: Tracker | None = None
        self._try(lambda: setattr(self, "_tracker", opening()))

    def add(self, scalars: Mapping[str, float], *, step: int, now: float) -> None:
        """Keeps scalars of one step, by their tags."""
        if (tracker := self._tracker) is not None:
            self._try(lambda: tracker.add(scalars, step=step, now=now))

    def close(self) -> None:
        """The training has ended."""
        if (tracker := self._tracker) is not None:
            self._try(tracker.close)

    def _try(self, doing: Callable[[], None]) -> None:
        try:
            doing()
        except Exception as error:  # noqa: BLE001 - whatever another project's client raises
            log.warning("%s takes no figures any more: %s", self._service, error)
            self._tracker = None


class MlflowTracker:
    """A run of MLflow, in the experiment of `MLFLOW_EXPERIMENT_NAME`."""

    def __init__(self, mlflow: Any, name: str, environment: Mapping[str, str]) -> None:
        self._metric = mlflow.entities.Metric
        self._client = mlflow.MlflowClient()
        experiment = mlflow.set_experiment(environment.get("MLFLOW_EXPERIMENT_NAME", _PROJECT))
        self._run: str = self._client.create_run(experiment.experiment_id, run_name=name).info.run_id

    def add(self, scalars: Mapping[str, float], *, step: int, now: float) -> None:
        """Keeps scalars of one step, by their tags."""
        metrics = [self._metric(tag, value, round(now * 1000), step) for tag, value in scalars.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        """The training has ended."""
        self._client.set_terminated(self._run)


class WandbTracker:
    """A run of W&B, in the project of `WANDB_PROJECT`."""

    def __init__(self, wandb: Any, name: str, environment: Mapping[str, str]) -> None:
        self._run = wandb.init(project=environment.get("WANDB_PROJECT", _PROJECT), name=name)

    def add(self, scalars: Mapping[str, float], *, step: int, now: float) -> None:  # noqa: ARG002 - it has a clock
        """Keeps scalars of one step, by their tags."""
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        """The training has ended."""
        self._run.finish()


def _library(name: str, variable: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise JobRefusedError(
            "LibraryMissing",
            f"{variable} is set, and {name} is not installed: choose an image that has it, or unset it",
        ) from error
