"""The phases of a run: what they mean, which may follow which, and the rules that lead there.

No decision reads this: phases come out of the rules. The table says what people may see, the tests hold the
rules to it, and the documentation draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.blocked import host_path_refused
from draftmill_operator.decide.clock import deadline_passed
from draftmill_operator.decide.evaluating import evaluating
from draftmill_operator.decide.finishing import finishing
from draftmill_operator.decide.paused import paused_without_servers
from draftmill_operator.decide.planning import planning
from draftmill_operator.decide.suspended import suspended
from draftmill_operator.decide.types import Rule
from draftmill_operator.decide.waiting import input_missing
from draftmill_operator.decide.working import attempt_over, working

MEANING: Final[Mapping[Phase, str]] = {
    Phase.PENDING: "Nothing is started: an administrator has to allow something; the message says what.",
    Phase.WAITING_FOR_INPUT: "The run that it takes its input from is not Complete. Nothing is held.",
    Phase.PLANNING: "The plan's Job looks at model, input and volumes. No GPU is held.",
    Phase.STARTING: "Servers load the model; the first workers get ready, and prove exact token ids.",
    Phase.RUNNING: "Workers do what is not on disk yet. A lost worker or server does not end it.",
    Phase.PAUSED: "Too many rows failed, or the volume is full: the workers wait, and after a while they go.",
    Phase.SUSPENDING: "`spec.suspend` is true, and something of the run is still there.",
    Phase.SUSPENDED: "`spec.suspend` is true, and nothing of the run is left but its files.",
    Phase.FINISHING: "The work is done; a drafter is evaluated, what is on disk is read and counted again.",
    Phase.SUCCEEDED: "The result is whole and published. It never changes again.",
    Phase.FAILED: "The run cannot go on by itself; the reason says why. It never changes again.",
}

FOLLOWING: Final[Mapping[Phase | None, Mapping[Phase, tuple[Rule, ...]]]] = {
    None: {
        Phase.PENDING: (host_path_refused,),
        Phase.WAITING_FOR_INPUT: (input_missing,),
        Phase.PLANNING: (input_missing, planning),
        Phase.STARTING: (planning,),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
    },
    Phase.WAITING_FOR_INPUT: {
        Phase.PENDING: (host_path_refused,),
        Phase.PLANNING: (input_missing, planning),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.FAILED: (deadline_passed,),
    },
    Phase.PENDING: {
        Phase.WAITING_FOR_INPUT: (input_missing,),
        Phase.PLANNING: (planning,),
        Phase.STARTING: (planning,),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.FAILED: (deadline_passed,),
    },
    Phase.PLANNING: {
        Phase.PENDING: (host_path_refused,),
        Phase.STARTING: (planning,),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.FAILED: (deadline_passed, planning),
    },
    Phase.STARTING: {
        Phase.RUNNING: (attempt_over, working),
        Phase.PAUSED: (working,),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.FINISHING: (attempt_over,),
        Phase.FAILED: (deadline_passed, attempt_over),
    },
    Phase.RUNNING: {
        Phase.STARTING: (attempt_over, working),
        Phase.PAUSED: (working,),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.FINISHING: (attempt_over,),
        Phase.FAILED: (deadline_passed, attempt_over),
    },
    Phase.PAUSED: {
        Phase.STARTING: (paused_without_servers,),
        Phase.RUNNING: (attempt_over, working),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.FINISHING: (attempt_over,),
        Phase.FAILED: (deadline_passed, attempt_over),
    },
    Phase.SUSPENDING: {
        Phase.PENDING: (host_path_refused,),
        Phase.WAITING_FOR_INPUT: (input_missing,),
        Phase.PLANNING: (input_missing, planning),
        Phase.STARTING: (planning, paused_without_servers, attempt_over, working),
        Phase.RUNNING: (attempt_over, working),
        Phase.PAUSED: (paused_without_servers, working),
        Phase.SUSPENDED: (suspended,),
        Phase.FINISHING: (evaluating, finishing, attempt_over),
        Phase.SUCCEEDED: (finishing,),
        Phase.FAILED: (deadline_passed, planning, finishing, attempt_over),
    },
    Phase.SUSPENDED: {
        Phase.PENDING: (host_path_refused,),
        Phase.WAITING_FOR_INPUT: (input_missing,),
        Phase.PLANNING: (input_missing, planning),
        Phase.STARTING: (planning, paused_without_servers, working),
        Phase.RUNNING: (attempt_over, working),
        Phase.PAUSED: (paused_without_servers,),
        Phase.SUSPENDING: (suspended,),
        Phase.FINISHING: (evaluating, finishing, attempt_over),
        Phase.SUCCEEDED: (finishing,),
        Phase.FAILED: (deadline_passed, planning, finishing, attempt_over),
    },
    Phase.FINISHING: {
        Phase.STARTING: (working,),
        Phase.RUNNING: (working,),
        Phase.SUSPENDING: (suspended,),
        Phase.SUSPENDED: (suspended,),
        Phase.SUCCEEDED: (finishing,),
        Phase.FAILED: (deadline_passed, finishing),
    },
}
"""Which phases may follow each one, and the rules that lead there; None stands for a new run."""
