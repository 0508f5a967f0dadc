"""The finish: servers go, then what is on disk is read again, and its counts are the run's result."""

from __future__ import annotations

from dataclasses import replace

from draftmill_api.progress import TerminationMessage
from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.evaluating import not_evaluated
from draftmill_operator.decide.steps import Step
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.run import Role

FINISH_FAILED = "FinishFailed"


def finishing(situation: Situation) -> Decision | None:
    """After the workers' success only the finish is left; GPUs are freed before it, unless they are kept."""
    if not all(worker.record.succeeded for worker in situation.workers):
        return None
    server, servers = situation.serving.apart, situation.seen.servers
    keep = server is not None and server.keep_after_success is not None
    if servers.exists and not servers.deleting and not keep:
        return Decision(Phase.FINISHING, Wanted(config=True))
    wanted = Wanted(config=True, finish=True, keep_servers=keep)
    failure = situation.facts.unevaluated
    warning = not_evaluated(failure) if failure is not None else None

    def finished(message: TerminationMessage) -> Decision | None:
        result = situation.kind.finished(situation.run, message)
        if result is None:
            return None
        if warning is not None:
            words = f"{result.message}; {warning.message}"
            result = replace(result, reason=warning.reason, message=words)
        return Decision(Phase.SUCCEEDED, Wanted(keep_servers=keep), completed=result)

    step = Step(Role.FINISH, Phase.FINISHING, FINISH_FAILED, wanted)
    return replace(step.judge(situation, situation.seen.finish, finished), warning=warning)
