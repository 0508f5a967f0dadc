"""How a run looks to people: one line for a log, one report for a screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import assert_never

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from draftmill_api.v1alpha1 import SynthRun, SynthRunStatus
from draftmill_api.v1alpha1.draftertrain import (
    DrafterTrain,
    DrafterTrainStatus,
    TrainEvaluation,
    TrainOutput,
    TrainProgress,
)
from draftmill_api.v1alpha1.extractrun import ExtractProgress, ExtractRun, ExtractRunStatus
from draftmill_api.v1alpha1.runstatus import AnyStatus
from draftmill_api.v1alpha1.shared import Volume
from draftmill_api.v1alpha1.status import DatasetProgress, Failure, Phase, RunProgress
from draftmill_cli.kinds import AnyRun

_COLOURS = {Phase.SUCCEEDED: "bold green", Phase.FAILED: "bold red", Phase.RUNNING: "bold cyan"}
_BAR_WIDTH = 40
_COUNTS = {
    "DONE": "done",
    "OK": "ok",
    "TRUNCATED": "truncated",
    "MALFORMED": "malformed",
    "ERRORS": "errors",
    "TOKENS": "completion_tokens",
}
_Progress = RunProgress | ExtractProgress | TrainProgress
_COUNTS_OF_A_RUN = {"SKIPPED": "skipped", "LEFT OUT": "not_admitted", "TOTAL": "total"}


def phase_of(run: AnyRun) -> Phase:
    """The run's phase; Pending until the operator has seen it."""
    return (run.status and run.status.phase) or Phase.PENDING


def line(run: AnyRun) -> str:
    """Phase, progress and reason in one line: `Running: 60/200 (0 errors), 1.2 req/s, ETA 2m`."""
    status = _status(run)
    parts = [str(phase_of(run))]
    if status.progress and status.progress.total:
        parts.append(_progress_words(status.progress))
    if (
        status.servers
        and not (status.progress and _settled(status.progress))
        and status.completion_time is None
    ):
        parts.append(f"servers {status.servers.summary}")
    if status.reason:
        parts.append(f"{status.reason}: {status.message}" if status.message else status.reason)
    elif status.message:
        parts.append(status.message)
    return ", ".join(parts)


def report(run: AnyRun, now: datetime) -> RenderableType:
    """Everything that the status tells, for a screen."""
    status = _status(run)
    parts: list[RenderableType] = [_facts(run, status, now)]
    if status.progress and status.progress.total:
        parts.append(_bar(status.progress))
    if isinstance(status, SynthRunStatus) and status.datasets:
        parts += ["", counts_table(status.datasets)]
    if status.conditions:
        rows = [(c.type, c.status.value, c.reason, c.message) for c in status.conditions]
        parts += ["", _table(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows)]
    if status.failures:
        parts += ["", failures_table(status.failures)]
    return Group(*parts)


def failures_table(failures: Iterable[Failure]) -> Table:
    """Why rows failed, and what to do about it."""
    rows = [(each.reason, f"{each.count:,}", each.id, each.message, each.remedy) for each in failures]
    return _table(("FAILURE", "ROWS", "FOR EXAMPLE", "MESSAGE", "WHAT TO DO"), rows)


def _facts(run: AnyRun, status: AnyStatus, now: datetime) -> Table:
    phase = phase_of(run)
    facts: list[tuple[str, str | Text]] = [
        (run.kind, f"{run.metadata['namespace']}/{run.metadata['name']}"),
        ("Phase", Text.assemble((phase, _COLOURS.get(phase, "bold")), _since(status, now))),
    ]
    if status.reason or status.message:
        facts.append(("Reason", ": ".join(text for text in (status.reason, status.message) if text)))
    facts += _of_kind(run)
    if status.servers:
        facts.append(("Servers", f"{status.servers.summary} ready"))
    for record in status.attempts:
        if record.count > 1:
            whose = f" of worker {record.worker}" if len(status.attempts) > 1 else ""
            last = f", last failure: {record.last_failure}" if record.last_failure else ""
            facts.append(("Attempts", f"{record.count}{whose}{last}"))
    if status.output:
        output = status.output
        facts.append(("Lies in", f"{_volume(output.volume)}, folder {output.path}"))
    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        table.add_row(name, value)
    return table


def _of_kind(run: AnyRun) -> Iterator[tuple[str, str | Text]]:
    """What only runs of its kind have to say."""
    match run:
        case SynthRun():
            return _of_synth_run(run)
        case ExtractRun():
            return _of_extract_run(run)
        case DrafterTrain():
            return _of_drafter_train(run)
        case _:
            assert_never(run)


def _of_synth_run(run: SynthRun) -> Iterator[tuple[str, str | Text]]:
    yield "Model", run.spec.model.name
    if run.status and run.status.plan:
        plan = run.status.plan
        yield "Plan", f"{plan.rows:,} rows, longest prompt {plan.longest_prompt_tokens:,} tokens"
    if run.status and run.status.output:
        yield "Output", f"{run.status.output.records:,} records, {run.status.output.tokens:,} tokens"


def _of_extract_run(run: ExtractRun) -> Iterator[tuple[str, str | Text]]:
    if run.spec.from_.synth_run:
        bound = f", bound to {run.status.input.uid}" if run.status and run.status.input else ""
        yield "From", f"SynthRun {run.spec.from_.synth_run.name}{bound}"
    if run.status and run.status.plan:
        states = run.status.plan
        layers = ", ".join(map(str, states.layer_ids))
        yield "Plan", f"{states.rows:,} rows, longest {states.longest_row:,} tokens, layers {layers}"
    if run.status and run.status.output:
        yield "Output", f"{run.status.output.rows:,} rows, {run.status.output.tokens:,} tokens"


def _of_drafter_train(run: DrafterTrain) -> Iterator[tuple[str, str | Text]]:
    if run.spec.from_.extract_run:
        bound = f", bound to {run.status.input.uid}" if run.status and run.status.input else ""
        yield "From", f"ExtractRun {run.spec.from_.extract_run.name}{bound}"
    yield "Ranks", f"{run.spec.nodes} nodes, {run.spec.gpus_per_node} GPUs each"
    if run.status and run.status.plan:
        plan = run.status.plan
        yield "Plan", f"{plan.rows:,} rows, {plan.held_out_rows:,} held out, {plan.steps:,} steps"
    if run.status and run.status.progress and run.status.progress.best_checkpoint:
        progress = run.status.progress
        yield "Best", f"{progress.best} after step {progress.best_step}, {progress.best_checkpoint}"
    if run.status and run.status.output:
        yield "Output", _drafter(run.status.output)
    if run.status and run.status.evaluation:
        yield "At work", _at_work(run.status.evaluation)


def _at_work(found: TrainEvaluation) -> str:
    speeds = "; ".join(
        f"{rate.ratio} times as fast at {rate.concurrency} requests ({rate.plain} -> {rate.drafting} tok/s)"
        for rate in found.rates
    )
    places = f" (by position {' '.join(found.by_position)})" if found.by_position else ""
    same = f"{found.identical} of {found.answers} answers the same"
    length = f"acceptance length {found.acceptance_length}{places} over {found.cycles:,} cycles"
    return f"{length}; {speeds}; {same}"


def _drafter(output: TrainOutput) -> str:
    """Where engines find it, and what its figure is called."""
    folders = output.vllm if output.vllm == output.sglang else f"{output.vllm} and {output.sglang}"
    if output.acceptance_length:
        return f"{folders}, simulated acceptance length {output.acceptance_length}"
    return folders + (f", teacher agreement {output.teacher_agreement}" if output.teacher_agreement else "")


def _status(run: AnyRun) -> AnyStatus:
    if run.status is not None:
        return run.status
    match run:
        case SynthRun():
            return SynthRunStatus()
        case ExtractRun():
            return ExtractRunStatus()
        case DrafterTrain():
            return DrafterTrainStatus()
        case _:
            assert_never(run)


def _settled(progress: _Progress) -> int:
    """Rows or steps that are over, one way or the other."""
    if isinstance(progress, TrainProgress):
        return progress.step
    if isinstance(progress, ExtractProgress):
        return progress.rows + progress.quarantined
    return progress.done + progress.errors + progress.skipped + progress.not_admitted


def _since(status: AnyStatus, now: datetime) -> str:
    if status.start_time is None:
        return ""
    end = datetime.fromisoformat(status.completion_time) if status.completion_time else now
    span = short_span((end - datetime.fromisoformat(status.start_time)).total_seconds())
    return f" after {span}" if status.completion_time else f" for {span}"


def short_span(seconds: float) -> str:
    """`42s`, `3m10s`, `2h05m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def _volume(volume: Volume) -> str:
    if volume.persistent_volume_claim:
        return f"claim {volume.persistent_volume_claim.claim_name}"
    if volume.nfs:
        return f"{volume.nfs.server}:{volume.nfs.path}"
    return f"{volume.host_path.path} of the node" if volume.host_path else ""


def _progress_words(progress: _Progress) -> str:
    if isinstance(progress, TrainProgress):
        return _training_words(progress)
    if isinstance(progress, ExtractProgress):
        return _extraction_words(progress)
    words = f"{progress.done}/{progress.total} ({progress.errors} errors)"
    if progress.requests_per_second:
        words += f", {progress.requests_per_second} req/s"
    if progress.tokens_per_second is not None:
        words += f", {progress.tokens_per_second} tok/s"
    if progress.average_completion_tokens is not None:
        words += f", avg completion: {progress.average_completion_tokens} tokens"
    if progress.eta and progress.eta_high:
        return f"{words}, ETA: {progress.eta} ({progress.eta_low} to {progress.eta_high})"
    return words + (f", ETA: {progress.eta}" if progress.eta else "")


def _extraction_words(progress: ExtractProgress) -> str:
    words = f"{progress.rows}/{progress.total} ({progress.quarantined} quarantined), {progress.size}"
    if progress.tokens_per_second is not None:
        words += f", {progress.tokens_per_second} tok/s"
    return words + (f", ETA: {progress.eta}" if progress.eta else "")


def _training_words(progress: TrainProgress) -> str:
    words = f"epoch {progress.epoch}, step {progress.step}/{progress.total}"
    if progress.loss:
        words += f", loss {progress.loss}"
    if progress.acceptance_length:
        words += f", acceptance length {progress.acceptance_length}"
    if progress.teacher_agreement:
        words += f", teacher agreement {progress.teacher_agreement}"
    if progress.tokens_per_second is not None:
        words += f", {progress.tokens_per_second} tok/s"
    return words + (f", ETA: {progress.eta}" if progress.eta else "")


def _bar(progress: _Progress) -> Table:
    settled = _settled(progress)
    bar = ProgressBar(total=progress.total, completed=min(settled, progress.total), width=_BAR_WIDTH)
    grid = Table.grid(padding=(0, 2))
    grid.add_row("Progress", bar, _progress_words(progress))
    return grid


def counts_table(datasets: Iterable[DatasetProgress], *, of_a_run: bool = True) -> Table:
    """What became of the rows of each dataset; without a run it is not known how many there should be."""
    columns = {**_COUNTS, **(_COUNTS_OF_A_RUN if of_a_run else {})}
    rows = (
        (dataset.name, *(f"{getattr(dataset, field):,}" for field in columns.values()))
        for dataset in datasets
    )
    return _table(("DATASET", *columns), rows, numbers=True)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, title in enumerate(header):
        table.add_column(title, justify="right" if numbers and index else "left")
    for row in rows:
        table.add_row(*row)
    return table
