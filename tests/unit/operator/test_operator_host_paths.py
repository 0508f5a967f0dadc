from __future__ import annotations

from typing import Any

import pytest

from draftmill_api.v1alpha1.status import Phase
from draftmill_operator.decide.blocked import host_path_refused, host_paths, is_allowed
from draftmill_operator.decide.types import Wanted
from tests.unit.operator.builders import SYNTH, planned, run, situation

CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


def on_node(path: str) -> dict[str, Any]:
    return {"models": {"hostPath": {"path": path}}, "data": CLAIM}


@pytest.mark.parametrize(
    ("path", "prefixes", "allowed"),
    [
        ("/mnt/models", (), False),
        ("/mnt/models", ("/mnt/models",), True),
        ("/mnt/models/", ("/mnt/models",), True),
        ("/mnt/models/kimi", ("/mnt/models",), True),
        ("/mnt/models/kimi", ("/mnt/models/",), True),
        ("/mnt/models-secret", ("/mnt/models",), False),
        ("/mnt", ("/mnt/models",), False),
        ("/mnt/models/../../etc", ("/mnt/models",), False),
        ("/etc", ("/srv", "/etc"), True),
        ("/anything", ("/",), True),
    ],
)
def test_a_path_is_allowed_below_a_prefix_only(path: str, prefixes: tuple[str, ...], allowed: bool) -> None:
    assert is_allowed(path, prefixes) is allowed


def test_a_run_with_a_path_that_is_not_allowed_waits_and_starts_nothing() -> None:
    decision = host_path_refused(situation(storage=on_node("/etc"), prefixes=("/srv",)))
    assert decision is not None
    assert decision.phase is Phase.PENDING
    assert decision.wanted == Wanted()
    assert decision.problem is not None
    assert decision.problem.reason == "HostPathNotAllowed"
    assert "storage.models" in decision.problem.message
    assert "/srv" in decision.problem.message


def test_a_run_that_has_started_is_not_stopped_by_a_narrower_setting() -> None:
    assert host_path_refused(situation(planned(), storage=on_node("/etc"))) is None


def test_volumes_of_pod_overrides_are_looked_at_too() -> None:
    pod = {"volumes": [{"name": "host", "hostPath": {"path": "/var"}}, {"name": "tmp", "emptyDir": {}}]}
    server = {"engine": "VLLM", "image": "i", "pod": pod}
    found = list(host_paths(SYNTH, run(server=server, generation={"pod": pod})))
    assert found == [("server.pod.volumes[host]", "/var"), ("generation.pod.volumes[host]", "/var")]
