from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from draftmill_cli.cluster import Cluster


@pytest.mark.parametrize(("role", "container"), [("worker", "draftmill"), ("server", "server")])
def test_the_log_is_that_of_the_roles_container_and_not_of_an_injected_one(
    role: str, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TwoContainers:
        """A pod whose log can only be had by a container's name."""

        def __init__(self, _: Any) -> None:
            self.lines = {container: [b"ours\n"], "istio-proxy": [b"theirs\n"]}

        def read_namespaced_pod_log(self, *_: Any, container: str, **__: Any) -> list[bytes]:
            return self.lines[container]

    monkeypatch.setattr(client, "CoreV1Api", TwoContainers)
    assert list(Cluster("team", None).log("pod", role, follow=False, tail=None)) == ["ours\n"]
