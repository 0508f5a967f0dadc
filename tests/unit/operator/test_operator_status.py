from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from draftmill_api.extractjob import JobRecords
from draftmill_api.progress import WorkerState
from draftmill_api.v1alpha1.shared import Endpoint
from draftmill_api.v1alpha1.status import ConditionStatus, DatasetProgress, Phase, RunProgress
from draftmill_api.v1alpha1.synthrun import SynthRunStatus
from draftmill_operator.decide.types import Decision, Situation, Wanted
from draftmill_operator.kinds.chaining import job_input
from draftmill_operator.observe.types import Observed, Problem
from draftmill_operator.run import Run
from draftmill_operator.status.cadence import only_progress_differs, progress_interval, worth_writing
from draftmill_operator.status.events import events_between
from draftmill_operator.status.summarise import summarise
from tests.support.played import finish_message, plan_message, worker_message
from tests.unit.operator.builders import (
    ENDPOINT,
    NOW,
    PLAN,
    SYNTH,
    doing,
    ended_pod,
    job,
    planned,
    pod,
    progress,
    run,
    servers,
)

GENERATING = Decision(Phase.RUNNING, Wanted(config=True, servers=True, workers={0: 1}))
AT_WORK = Observed(workers=(job(pod(), attempt=1),), servers=servers(pod()), progress={0: progress(40)})


def after(
    status: SynthRunStatus | None = None,
    seen: Observed | None = None,
    decision: Decision = GENERATING,
    *,
    endpoints: tuple[Endpoint, ...] = (ENDPOINT,),
    seconds: float = 0,
    **parts: Any,
) -> SynthRunStatus:
    now = NOW + timedelta(seconds=seconds)
    where = Situation(SYNTH, run(status, **parts), seen or Observed(), endpoints, (), now)
    result = summarise(where, decision)
    assert isinstance(result, SynthRunStatus)
    return result


def condition(status: SynthRunStatus, kind: str) -> tuple[str, str, str]:
    (found,) = [item for item in status.conditions if item.type == kind]
    return found.status.value, found.reason, found.message


def test_a_new_run_has_a_start_time_and_says_that_it_plans() -> None:
    status = after(decision=Decision(Phase.PLANNING, Wanted(config=True, plan=True)), endpoints=())
    assert status.start_time == "2026-01-01T12:00:00Z"
    assert condition(status, "Planned") == ("False", "Planning", "the plan is at work")
    assert condition(status, "ServersReady")[:2] == ("False", "NotStarted")
    assert condition(status, "Progressing")[:2] == ("True", "Planning")


def test_a_run_that_is_blocked_has_not_started_and_can_still_be_edited() -> None:
    blocked = Decision(Phase.PENDING, problem=Problem("HostPathNotAllowed", "no"))
    status = after(decision=blocked, endpoints=())
    assert status.start_time is None
    assert (status.phase, status.reason, status.message) == (Phase.PENDING, "HostPathNotAllowed", "no")


def test_a_run_whose_plan_has_just_come_has_released_nothing() -> None:
    decision = Decision(
        Phase.STARTING, Wanted(config=True, plan=True), plan=SYNTH.plan(run(), plan_message(100))
    )
    assert condition(after(decision=decision, endpoints=()), "ServersReady")[1] == "NotStarted"


def test_the_plans_lists_get_the_names_of_the_datasets() -> None:
    decision = replace(GENERATING, plan=SYNTH.plan(run(), plan_message(100)))
    status = after(decision=decision)
    assert status.plan is not None
    assert [(item.name, item.total) for item in status.plan.datasets] == [("B1_glaive", 100)]
    assert status.plan.rows == 100


@pytest.mark.parametrize(
    ("replicas", "ready", "problem", "expected"),
    [
        (1, 1, None, ("True", "AllReady", "1 of 1 servers are ready")),
        (2, 1, Problem("Unschedulable", "0/1"), ("True", "PartlyReady", "1 of 2 servers are ready: 0/1")),
        (1, 0, Problem("Unschedulable", "0/1"), ("False", "Unschedulable", "0 of 1 servers are ready: 0/1")),
        (1, 0, None, ("False", "Starting", "0 of 1 servers are ready")),
    ],
)
def test_servers_ready(
    replicas: int, ready: int, problem: Problem | None, expected: tuple[str, str, str]
) -> None:
    server = {"engine": "VLLM", "image": "i", "replicas": replicas}
    seen = Observed(servers=servers(problem=problem))
    status = after(planned(), seen, endpoints=(ENDPOINT,) * ready, server=server)
    assert condition(status, "ServersReady") == expected
    assert status.servers is not None
    assert status.servers.summary == f"{ready}/{replicas}"


def test_progress_comes_from_the_worker_with_its_rates() -> None:
    status = after(planned(), AT_WORK)
    assert status.progress == progress(40).progress
    assert status.config_hash == "c"


def test_nothing_of_a_worker_in_its_preflight_is_shown() -> None:
    seen = replace(AT_WORK, progress={0: progress(0, WorkerState.PREFLIGHT)})
    assert after(planned(), seen).progress is None


def test_between_two_attempts_counts_stay_and_rates_are_empty() -> None:
    status = after(planned(progress=progress(40).progress), Observed(servers=servers(pod())))
    assert status.progress is not None
    assert (status.progress.done, status.progress.in_flight) == (40, 0)
    assert (status.progress.requests_per_second, status.progress.eta) == ("", "")


def test_the_workers_last_words_count_more_than_its_last_answer() -> None:
    seen = replace(AT_WORK, workers=(job(ended_pod(0, worker_message(100, 100)), attempt=1),))
    status = after(planned(), seen)
    assert status.progress is not None
    assert status.progress.done == 100


def completed(status: SynthRunStatus, *, cap_reached: bool = False) -> SynthRunStatus:
    finish = SYNTH.finished(run(status), finish_message(100, cap_reached=cap_reached))
    return after(status, decision=Decision(Phase.SUCCEEDED, completed=finish), endpoints=(), seconds=60)


def test_a_complete_run_has_the_finishs_counts_and_publishes_its_output() -> None:
    known = DatasetProgress(name="B1_glaive", done=90, ok=90, total=100)
    status = completed(
        planned(progress=progress(90).progress, datasets=[known], start_time="2026-01-01T00:00:00Z")
    )
    assert status.phase is Phase.SUCCEEDED
    assert status.progress is not None
    assert status.progress.done == 100
    assert [(item.name, item.done, item.ok) for item in status.datasets] == [("B1_glaive", 100, 100)]
    assert status.output is not None
    assert (status.output.path, status.output.manifest) == ("prepared", "prepared/manifest.json")
    assert status.output.volume.persistent_volume_claim is not None
    assert status.completion_time == "2026-01-01T12:01:00Z"
    assert condition(status, "Complete") == ("True", "Finished", "100 records")
    assert condition(status, "ServersReady")[:2] == ("False", "Released")
    assert status.reason == ""


def test_a_folder_that_the_plan_chose_is_told_to_the_steps_after_it_and_to_the_run_that_follows() -> None:
    wanted = {"path": "prepared", "onChange": "NewFolder"}
    before = SYNTH.config(run(output=wanted), ()).output
    assert (before.path, before.on_change) == ("/data/prepared", "NewFolder")
    chosen = "prepared@0123456789abcdef"
    said = plan_message(100)
    assert said.plan is not None
    said = said.model_copy(update={"plan": said.plan.model_copy(update={"output": chosen})})
    recorded = SYNTH.plan(run(output=wanted), said)
    assert recorded is not None
    later = run(SynthRunStatus(plan=recorded), output=wanted)
    after_it = SYNTH.config(later, ()).output
    assert (after_it.path, after_it.on_change) == (f"/data/{chosen}", "Refuse")
    finished = SYNTH.finished(later, finish_message(100))
    assert finished is not None
    assert finished.output.path == chosen
    published = SYNTH.published(run(SynthRunStatus(plan=recorded, output=finished.output)))
    assert published is not None
    data = later.spec.storage.data
    assert job_input(JobRecords, later.key, None, published, data).path == f"/data/{chosen}"


def test_a_run_that_was_planned_before_there_was_a_choice_of_folder_goes_on_in_its_own() -> None:
    plan = PLAN.model_dump(by_alias=True, mode="json")
    del plan["outputPath"]
    later = run(SynthRunStatus.model_validate({"plan": plan}))
    assert SYNTH.config(later, ()).output.path == "/data/prepared"
    finished = SYNTH.finished(later, finish_message(100))
    assert finished is not None
    assert finished.output.path == "prepared"


def test_job_images_of_before_are_told_nothing_that_they_do_not_know() -> None:
    assert sorted(SYNTH.config(run(), ()).to_json()["output"]) == ["compression", "path"]
    assert sorted(SYNTH.config(run(planned()), ()).to_json()["output"]) == ["compression", "path"]
    wanted = {"path": "prepared", "onChange": "NewFolder"}
    assert SYNTH.config(run(output=wanted), ()).to_json()["output"]["onChange"] == "NewFolder"


def test_a_reached_cap_is_success_and_said() -> None:
    status = completed(planned(), cap_reached=True)
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, "CapReached")
    assert condition(status, "Complete")[1] == "CapReached"


def test_an_ended_run_keeps_its_status_whatever_is_seen() -> None:
    ended = completed(planned())
    assert after(ended, AT_WORK, Decision(Phase.SUCCEEDED), seconds=999) == ended


def test_exactly_one_terminal_condition_is_set() -> None:
    failed = after(planned(), decision=Decision(Phase.FAILED, failed=Problem("ModelNotFound", "no")))
    assert [item.type for item in failed.conditions if item.type in {"Complete", "Failed"}] == ["Failed"]
    assert (failed.phase, failed.reason, failed.message) == (Phase.FAILED, "ModelNotFound", "no")


def test_a_transition_time_moves_with_the_status_only() -> None:
    first = after(planned(), endpoints=())
    second = after(first, Observed(servers=servers(problem=Problem("X", "y"))), endpoints=(), seconds=60)
    third = after(second, seconds=120)
    times = [
        next(item.last_transition_time for item in status.conditions if item.type == "ServersReady")
        for status in (first, second, third)
    ]
    assert times == ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T12:02:00Z"]


def test_an_equal_pass_is_not_worth_a_write() -> None:
    status = after(planned(), AT_WORK)
    assert not worth_writing(status, after(status, AT_WORK, seconds=3600))


def test_rates_alone_are_not_worth_a_write_and_counts_are() -> None:
    status = after(planned(), AT_WORK)
    faster = replace(
        AT_WORK,
        progress={
            0: progress(40).model_copy(
                update={"progress": progress(40).progress.model_copy(update={"requests_per_second": "9"})}
            )
        },
    )
    assert not worth_writing(status, after(status, faster))
    assert worth_writing(status, after(status, replace(AT_WORK, progress={0: progress(41)})))


def test_the_figures_in_a_warning_are_written_no_more_often_than_counts() -> None:
    def warned(share: str, done: int, before: SynthRunStatus) -> SynthRunStatus:
        warning = Problem("ErrorsFrequent", f"{share} % of the last rows failed")
        seen = replace(AT_WORK, progress={0: progress(done)})
        return after(before, seen, decision=replace(GENERATING, warning=warning))

    first = warned("2.2", 40, after(planned(), AT_WORK))
    assert condition(first, "Progressing")[0] == "True"
    assert not worth_writing(first, warned("2.4", 40, first))
    later = warned("2.4", 41, first)
    assert worth_writing(first, later)
    assert only_progress_differs(first, later)


def test_many_running_runs_write_their_progress_less_often() -> None:
    assert progress_interval(50) == 5
    assert progress_interval(51) == 30


def reasons(old: SynthRunStatus, new: SynthRunStatus) -> list[tuple[str, str]]:
    return [(event.type.value, event.reason) for event in events_between(old, new)]


def test_events_tell_what_became_true_once() -> None:
    first = after(planned())
    assert reasons(SynthRunStatus(), first) == [("Normal", "Planned"), ("Normal", "ServersReady")]
    assert reasons(first, after(first, seconds=60)) == []


def test_events_tell_attempts() -> None:
    before = doing(count=1)
    lost = doing(count=1, last_failed_attempt=1, last_failure="exit code 137")
    started = doing(count=2, last_failed_attempt=1)
    assert reasons(before, lost) == [("Warning", "AttemptFailed")]
    assert reasons(lost, started) == [("Normal", "AttemptStarted")]


def test_a_problem_is_told_when_its_reason_is_new() -> None:
    calm = after(planned())
    troubled = after(calm, decision=replace(GENERATING, problem=Problem("Unschedulable", "0/1")))
    other_words = after(troubled, decision=replace(GENERATING, problem=Problem("Unschedulable", "0/2")))
    assert ("Warning", "Unschedulable") in reasons(calm, troubled)
    assert reasons(troubled, other_words) == []


def test_a_lost_attempt_is_told_once() -> None:
    calm = after(planned())
    lost = after(calm, decision=replace(GENERATING, problem=Problem("WorkerRestarting", "exit code 137")))
    assert reasons(calm, lost) == []


def test_a_failure_is_told_with_its_reason() -> None:
    failed = after(planned(), decision=Decision(Phase.FAILED, failed=Problem("ModelNotFound", "no")))
    assert ("Warning", "ModelNotFound") in reasons(planned(), failed)


def test_the_status_that_is_written_can_be_read_again() -> None:
    status = completed(planned(progress=RunProgress(done=1)))
    assert SynthRunStatus.model_validate(status.to_json()) == status
    assert ConditionStatus.TRUE in {item.status for item in status.conditions}
    assert isinstance(run(status), Run)
