"""Which rule decides, and what: one table, in the order of a run's life."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from draftmill_api.progress import Concern, WorkerState
from draftmill_api.v1alpha1.runstatus import Attempts
from draftmill_api.v1alpha1.status import Condition, ConditionStatus, ConditionType, Phase, RunProgress
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.decide.rules import decide
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.observe.types import JobState, Observed, ObservedServers, Problem
from draftmill_operator.run import Role
from tests.support.played import finish_message, plan_message, refusal_message
from tests.unit.operator.builders import (
    NOW,
    SERVER,
    SYNTH,
    doing,
    ended_pod,
    job,
    planned,
    pod,
    progress,
    run,
    servers,
    situation,
)

PLANNING = Wanted(config=True, plan=True)
SERVING = Wanted(config=True, servers=True)
FINISHING = Wanted(config=True, finish=True)
READY = servers(pod("server"))
WORKED = RunProgress(done=40, total=100)
NO_ROOM = Problem("Unschedulable", "0/1 nodes")
HALF_SERVED = Observed(
    workers=(job(pod(), attempt=1),),
    servers=servers(pod("server"), pod("second", ready=False, problem=NO_ROOM)),
    progress={0: progress(1)},
)


def case(name: str, where: Situation, **expected: Any) -> Any:
    return pytest.param(where, expected, id=name)


def working(attempt: int) -> Wanted:
    return Wanted(config=True, servers=True, workers={0: attempt})


def terminal(kind: ConditionType) -> SynthRunStatus:
    condition = Condition(
        type=kind.value,
        status=ConditionStatus.TRUE,
        reason="R",
        last_transition_time="2026-01-01T00:00:00Z",
        observed_generation=1,
    )
    return planned(conditions=[condition])


def done(*, finish: Any = None, server: ObservedServers | None = None) -> Situation:
    status = doing(count=1, succeeded=True)
    return situation(status, Observed(finish=finish, servers=server or ObservedServers(exists=False)))


def waiting_for_retry(seconds: float, *, living: Any = ()) -> Situation:
    status = doing(count=1, last_failed_attempt=1, last_failure_time="2026-01-01T12:00:00Z")
    seen = Observed(servers=READY, stray_worker_pods=living)
    return situation(status, seen, now=NOW + timedelta(seconds=seconds))


CASES = [
    case("new", situation(), phase=Phase.PLANNING, wanted=PLANNING),
    case("plan runs", situation(seen=Observed(plan=job(pod()))), phase=Phase.PLANNING, wanted=PLANNING),
    case(
        "plan cannot pull its image",
        situation(seen=Observed(plan=job(pod(problem=Problem("ImagePullBackOff", "no such image"))))),
        wanted=PLANNING,
        problem=Problem("ImagePullBackOff", "no such image"),
    ),
    case(
        "plan answered",
        situation(seen=Observed(plan=job(ended_pod(0, plan_message(100)), state=JobState.SUCCEEDED))),
        phase=Phase.STARTING,
        plan=SYNTH.plan(run(), plan_message(100)),
        requeue_after=0,
    ),
    case(
        "plan answered, Job not told yet",
        situation(seen=Observed(plan=job(ended_pod(0, plan_message(100))))),
        phase=Phase.PLANNING,
        wanted=PLANNING,
        plan=None,
    ),
    case(
        "plan is done, its pod's end not heard of yet",
        situation(seen=Observed(plan=job(pod(), state=JobState.SUCCEEDED))),
        phase=Phase.PLANNING,
        wanted=PLANNING,
        redo=None,
    ),
    case(
        "plan's answer is lost",
        situation(seen=Observed(plan=job(state=JobState.SUCCEEDED))),
        redo=Role.PLAN,
        wanted=Wanted(config=True),
    ),
    case(
        "plan's answer is of another version",
        situation(seen=Observed(plan=job(ended_pod(0, text='{"x": 1}'), state=JobState.SUCCEEDED))),
        phase=Phase.FAILED,
        failed=Problem(
            "UnreadableAnswer",
            "job left a termination message that is not its result; do the job image and the operator "
            "have the same version?",
        ),
    ),
    case(
        "plan refuses",
        situation(seen=Observed(plan=job(ended_pod(2, refusal_message("ModelNotFound", "no config.json"))))),
        phase=Phase.FAILED,
        failed=Problem("ModelNotFound", "no config.json"),
        wanted=Wanted(),
    ),
    case(
        "plan fails and is tried again",
        situation(seen=Observed(plan=job(ended_pod(1, text="oops"), failed_pods=1))),
        phase=Phase.PLANNING,
        problem=Problem("StepFailed", "job: exit code 1: oops; it is tried again"),
    ),
    case(
        "plan failed too often",
        situation(seen=Observed(plan=job(ended_pod(1, text="oops"), state=JobState.FAILED))),
        failed=Problem("PlanFailed", "exit code 1: oops"),
    ),
    case(
        "plan's Job is being deleted",
        situation(seen=Observed(plan=job(deleting=True, state=JobState.SUCCEEDED))),
        phase=Phase.PLANNING,
        wanted=PLANNING,
    ),
    case(
        "planned, no server yet",
        situation(planned(), endpoints=()),
        phase=Phase.STARTING,
        wanted=SERVING,
        problem=None,
    ),
    case(
        "server unschedulable",
        situation(
            planned(),
            Observed(servers=servers(pod(ready=False, problem=Problem("Unschedulable", "0/1 nodes")))),
            endpoints=(),
        ),
        problem=Problem("Unschedulable", "0/1 nodes"),
        wanted=SERVING,
    ),
    case(
        "server pods refused by quota",
        situation(
            planned(), Observed(servers=servers(problem=Problem("FailedCreate", "quota"))), endpoints=()
        ),
        problem=Problem("FailedCreate", "quota"),
    ),
    case(
        "server ready",
        situation(planned(), Observed(servers=READY)),
        phase=Phase.STARTING,
        wanted=working(1),
        attempts=Attempts(worker=0, count=1),
    ),
    case(
        "worker in preflight",
        situation(
            doing(count=1),
            Observed(
                workers=(job(pod(), attempt=1),),
                servers=READY,
                progress={0: progress(0, WorkerState.PREFLIGHT)},
            ),
        ),
        phase=Phase.STARTING,
        wanted=working(1),
        attempts=Attempts(worker=0, count=1),
    ),
    case(
        "worker at work",
        situation(
            doing(count=1),
            Observed(workers=(job(pod(), attempt=1),), servers=READY, progress={0: progress(1)}),
        ),
        phase=Phase.RUNNING,
        wanted=working(1),
        problem=None,
    ),
    case(
        "worker runs and has not answered yet",
        situation(planned(), Observed(workers=(job(pod(), attempt=1),), servers=READY)),
        phase=Phase.STARTING,
        problem=None,
        requeue_after=15,
    ),
    case(
        "worker runs and cannot be heard",
        situation(
            planned(),
            Observed(workers=(job(pod(), attempt=1),), servers=READY),
            now=NOW + timedelta(seconds=91),
        ),
        problem=Problem(
            "ProgressUnreachable",
            "pod pod runs, but its port 9090 does not answer; does a NetworkPolicy keep the operator out?",
        ),
    ),
    case(
        "all servers lost while the worker works",
        situation(
            planned(attempts=[Attempts(worker=0, count=1)], progress=WORKED),
            Observed(workers=(job(pod(), attempt=1),), servers=servers(), progress={0: progress(1)}),
            endpoints=(),
        ),
        phase=Phase.RUNNING,
        wanted=working(1),
        problem=Problem("ServersNotReady", "no server is ready; the worker waits for one"),
    ),
    case(
        "one of two servers cannot be placed while the worker works",
        situation(doing(count=1), HALF_SERVED, server=SERVER | {"replicas": 2}),
        phase=Phase.RUNNING,
        wanted=working(1),
        problem=None,
        warning=NO_ROOM,
    ),
    case(
        "servers are fewer than there were, and enough",
        situation(doing(count=1), HALF_SERVED, server=SERVER | {"replicas": 1}),
        warning=None,
    ),
    case(
        "one of two workers is done while one of two servers cannot be placed",
        situation(
            planned(attempts=[Attempts(worker=0, count=1), Attempts(worker=1, count=1)]),
            replace(
                HALF_SERVED,
                workers=(job(ended_pod(0), attempt=1), job(pod(), attempt=1, worker=1)),
            ),
            server=SERVER | {"replicas": 2},
            generation={"workers": 2},
        ),
        requeue_after=0,
        warning=NO_ROOM,
    ),
    case(
        "what the workers warn of: the gravest",
        situation(
            planned(attempts=[Attempts(worker=0, count=1), Attempts(worker=1, count=1)]),
            Observed(
                workers=(job(pod(), attempt=1), job(pod(), attempt=1, worker=1)),
                servers=READY,
                progress={
                    0: progress(
                        1, worker="0/2", warning="1 of 2 servers have rows", concern=Concern.SERVER_OUT
                    ),
                    1: progress(1, worker="1/2", warning="the long ones fail", concern=Concern.LENGTH_BIAS),
                },
            ),
            generation={"workers": 2},
        ),
        phase=Phase.RUNNING,
        warning=Problem("LengthBias", "the long ones fail"),
    ),
    case(
        "worker's Job seen, its number not recorded",
        situation(planned(), Observed(workers=(job(pod(), attempt=4),), servers=READY)),
        wanted=working(4),
        attempts=Attempts(worker=0, count=4),
    ),
    case(
        "worker killed after progress",
        situation(
            doing(count=1),
            Observed(workers=(job(ended_pod(137), attempt=1),), servers=READY, progress={0: progress(40)}),
        ),
        phase=Phase.RUNNING,
        wanted=SERVING,
        requeue_after=0,
        attempts=Attempts(
            worker=0,
            count=1,
            last_failed_attempt=1,
            done_at_last_failure=40,
            last_failure_time="2026-01-01T12:00:00Z",
            last_failure="exit code 137",
        ),
    ),
    case(
        "delay after the failure",
        waiting_for_retry(0.25),
        wanted=SERVING,
        requeue_after=0.75,
    ),
    case("delay over", waiting_for_retry(1), wanted=working(2)),
    case(
        "delay over, but a pod of the lost attempt still writes",
        waiting_for_retry(1, living=(pod("old", deleting=True),)),
        wanted=SERVING,
        problem=Problem("WorkerRestarting", "waiting for pod old to be gone"),
    ),
    case(
        "worker's Job deleted by hand",
        situation(planned(attempts=[Attempts(worker=0, count=3)], progress=WORKED), Observed(servers=READY)),
        phase=Phase.RUNNING,
        wanted=working(4),
    ),
    case(
        "worker lost, and no server to start the next one for",
        situation(
            planned(attempts=[Attempts(worker=0, count=3)], progress=WORKED),
            Observed(servers=servers()),
            endpoints=(),
        ),
        wanted=SERVING,
        problem=Problem("ServersNotReady", "no server is ready; the next attempt waits for one"),
    ),
    case(
        "failures without progress beyond the limit",
        situation(
            doing(count=7, without_progress=6, last_failed_attempt=6),
            Observed(workers=(job(ended_pod(1, text="oops"), attempt=7),), servers=READY),
        ),
        phase=Phase.FAILED,
        wanted=Wanted(),
        failed=Problem(
            "BackoffLimitExceeded",
            "7 attempts in a row failed without progress; last: exit code 1: oops",
        ),
    ),
    case(
        "worker refuses",
        situation(
            doing(count=1),
            Observed(workers=(job(ended_pod(2, refusal_message("PreflightFailed", "x")), attempt=1),)),
        ),
        failed=Problem("PreflightFailed", "x"),
    ),
    case(
        "worker done",
        situation(
            doing(count=1),
            Observed(workers=(job(ended_pod(0), attempt=1),), servers=READY),
        ),
        phase=Phase.FINISHING,
        attempts=Attempts(worker=0, count=1, succeeded=True),
        requeue_after=0,
    ),
    case("done, servers still there", done(server=READY), wanted=Wanted(config=True)),
    case("done, servers going", done(server=ObservedServers(exists=True, deleting=True)), wanted=FINISHING),
    case("done, servers gone", done(), phase=Phase.FINISHING, wanted=FINISHING),
    case("finish runs", done(finish=job(pod())), phase=Phase.FINISHING, wanted=FINISHING),
    case(
        "finish answered",
        done(finish=job(ended_pod(0, finish_message(100)), state=JobState.SUCCEEDED)),
        phase=Phase.SUCCEEDED,
        completed=SYNTH.finished(run(planned()), finish_message(100)),
        wanted=Wanted(),
    ),
    case(
        "finish's answer is lost",
        done(finish=job(state=JobState.SUCCEEDED)),
        redo=Role.FINISH,
        phase=Phase.FINISHING,
    ),
    case(
        "finish said what is no finish",
        done(finish=job(ended_pod(0, plan_message(1)), state=JobState.SUCCEEDED)),
        phase=Phase.FAILED,
    ),
    case(
        "finish refuses",
        done(finish=job(ended_pod(2, refusal_message("AccountingFailed", "99 of 100")))),
        failed=Problem("AccountingFailed", "99 of 100"),
    ),
    case("ended well", situation(terminal(ConditionType.COMPLETE)), phase=Phase.SUCCEEDED, wanted=Wanted()),
    case("ended badly", situation(terminal(ConditionType.FAILED)), phase=Phase.FAILED, wanted=Wanted()),
    case(
        "ended, and its children are gone or are back",
        situation(
            terminal(ConditionType.COMPLETE), Observed(workers=(job(pod(), attempt=1),), servers=READY)
        ),
        wanted=Wanted(),
    ),
]


@pytest.mark.parametrize(("where", "expected"), CASES)
def test_what_is_decided(where: Situation, expected: dict[str, Any]) -> None:
    decision: Decision = decide(where)
    if "attempts" in expected:
        assert decision.facts is not None
        assert decision.facts.attempts == (expected.pop("attempts"),)
    assert {field: getattr(decision, field) for field in expected} == expected


def test_with_given_endpoints_no_servers_are_wanted() -> None:
    endpoint = {"name": "one", "url": "http://10.0.0.5:8000", "engine": "VLLM"}
    decision = decide(situation(planned(), given=[endpoint]))
    assert decision.wanted == Wanted(config=True, servers=False, workers={0: 1})
