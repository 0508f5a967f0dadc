"""All checks, in the order in which data pass through the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from draftmill_jobs.doctor.drafter_checks import (
    check_acceptance,
    check_coverage,
    check_export,
    check_feedback,
    check_fit,
    check_layer_ids,
    check_map,
)
from draftmill_jobs.doctor.evidence import Patient
from draftmill_jobs.doctor.layer_checks import check_known_layers, check_layers
from draftmill_jobs.doctor.state_checks import check_norm, check_teacher
from draftmill_jobs.doctor.store_checks import check_files, check_mask, check_numbers, check_target
from draftmill_jobs.doctor.verdict import Finding, NotLookedAtError, Outcome, Stage, Verdict
from draftmill_jobs.errors import JobRefusedError


class Check(NamedTuple):
    """One check, and the stage that is to blame when it finds something wrong."""

    name: str
    stage: Stage
    look: Callable[[Patient], Finding]


CHECKS: Final = (
    Check("files of the store", Stage.STORE, check_files),
    Check("target of the store", Stage.TARGET, check_target),
    Check("numbers of the states", Stage.EXTRACTION, check_numbers),
    Check("last state before the final norm", Stage.EXTRACTION, check_norm),
    Check("teacher self-check", Stage.EXTRACTION, check_teacher),
    Check("layers of the states", Stage.EXTRACTION, check_layers),
    Check("loss mask", Stage.MASK, check_mask),
    Check("files of the drafter", Stage.EXPORT, check_export),
    Check("drafter beside target and store", Stage.TARGET, check_fit),
    Check("layer ids of the drafter", Stage.EXPORT, check_layer_ids),
    Check("layers by what is drafted", Stage.EXPORT, check_known_layers),
    Check("draft vocabulary", Stage.VOCABULARY, check_coverage),
    Check("d2t by what is drafted", Stage.VOCABULARY, check_map),
    Check("feedback between steps", Stage.EXPORT, check_feedback),
    Check("drafting", Stage.TRAINING, check_acceptance),
)


def examine(patient: Patient) -> Iterator[Verdict]:
    """Yields what each check says, as soon as it does."""
    for check in CHECKS:
        try:
            finding = check.look(patient)
        except (NotLookedAtError, JobRefusedError) as error:
            finding = Finding(Outcome.NOT_LOOKED_AT, str(error))
        yield Verdict(check.name, check.stage, finding)
