"""`draftmill doctor`: which stage is wrong when a drafter is not accepted."""

from __future__ import annotations

from argparse import Namespace

from rich.table import Table

from draftmill_cli.console import show
from draftmill_jobs.doctor.evidence import Patient
from draftmill_jobs.doctor.examining import examine
from draftmill_jobs.doctor.verdict import Outcome, Verdict, wrong_stage


def run(args: Namespace) -> int:
    """Prints what each check says, and the stage that is wrong; 0 when none is."""
    verdicts = list(examine(Patient(args.store, args.drafter, args.target, args.rows)))
    show(_table(verdicts), _conclusion(verdicts))
    return 0 if wrong_stage(verdicts) is None else 1


def _table(verdicts: list[Verdict]) -> Table:
    table = Table(box=None)
    for heading in ("CHECK", "STAGE", "VERDICT", "FOUND"):
        table.add_column(heading)
    for verdict in verdicts:
        finding = verdict.finding
        table.add_row(verdict.check, verdict.stage, finding.outcome, finding.message)
    return table


def _conclusion(verdicts: list[Verdict]) -> str:
    if (stage := wrong_stage(verdicts)) is not None:
        return f"The stage that is wrong: {stage}."
    unseen = sum(verdict.finding.outcome is Outcome.NOT_LOOKED_AT for verdict in verdicts)
    return "No stage is wrong" + (f"; {unseen} checks had nothing to look at." if unseen else ".")
