"""The pipeline's first two stages, applied together, on a real node with real servers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill_api.jobconfig import JobModel
from draftmill_api.names import JOB_CONTAINER, SERVER_CONTAINER
from draftmill_cli.main import main
from draftmill_dev import model, venvs
from draftmill_dev.cluster import Cluster
from draftmill_dev.kubectl import Kubectl
from draftmill_jobs.extract.transformers_model import load_model
from draftmill_jobs.store import Check, Store
from tests.support.bed import Bed
from tests.support.hidden_states_server import States, worst_error
from tests.support.records_on_disk import assert_complete
from tests.support.waiting import until

pytestmark = [pytest.mark.life, pytest.mark.timeout(3600)]

ROWS = {"B1_stored": 29, "B2_stored": 31}  # different numbers make different prompts
KEPT = {"ok", "truncated", "truncated_reasoning"}
SAMPLED = 20
LAYERS = 30
LARGEST_ERROR = 1e-4  # relative L2 of a (token, layer)
SERVER_START = 600.0  # seconds; a model server starts in one, but not while others use the cores
RESTART = 120.0  # seconds until the kubelet starts a container again


def test_two_runs_applied_together_end_with_the_targets_states_though_extractor_and_server_are_killed(
    bed: Bed, cluster: Cluster
) -> None:
    answers, states = example(bed, "synthrun-demo.yaml"), example(bed, "extractrun-demo.yaml")
    kubectl = Kubectl(cluster.programs.kubectl, cluster.programs.helm, cluster.kubeconfig, bed.kube.namespace)

    kubectl.apply([states, answers])
    bed.kube.wait_phase("answers", "Succeeded", within=2 * SERVER_START)
    victim = Victim(bed, "states")
    victim.kill(JOB_CONTAINER)
    victim.kill(SERVER_CONTAINER)
    status = victim.kube.wait_phase("states", "Succeeded", within=SERVER_START)

    answered = assert_complete(bed.output("answers"), ROWS)
    records = {each["id"]: each for each in answered if each["status"] in KEPT}
    output, (attempts,) = status["output"], status["attempts"]
    assert (output["rows"], status["progress"]["quarantined"]) == (len(records), 0)
    assert (attempts["count"], attempts["restarts"]) == (1, 1)
    assert main(["store", "verify", str(victim.folder)]) == 0
    with Store.open(victim.folder, check=Check.HASHES) as store:
        assert sorted(line.id for line in store.lines) == sorted(records)
        for row in store:
            record = records[row.line.id]
            assert row.token_ids.tolist() == record["prompt_ids"] + record["output_ids"]
        stored, reference = sampled(store)
    error = worst_error(stored, reference)
    print(f"worst relative L2 of a (token, layer): {error:.2e}")
    assert error <= LARGEST_ERROR


class Victim:
    """An extractor and the server in its pod."""

    def __init__(self, bed: Bed, run: str) -> None:
        self.kube = bed.kube.of("extractruns")
        self.folder = bed.data / "runs" / run
        self._run = run

    def kill(self, container: str) -> None:
        """Kills a container once more rows are durable, while there is work left, and waits for the next."""
        pod = self.kube.running_pod(self._run, "worker", within=SERVER_START)
        before = self._durable()
        until(lambda: self._durable() >= before + 3, SERVER_START, self._told("more rows"))
        assert self._durable() < sum(ROWS.values()), "nothing is left to do"
        self.kube.kill(self._pod(), container)
        until(lambda: self._has_restarted(container), RESTART, self._told(f"{container} runs again"))
        assert self._pod().metadata.uid == pod.metadata.uid, "another pod has taken its place"

    def _durable(self) -> int:
        """Rows in the journal of the open shard, which is the only one there is before the end."""
        journals = [path.read_bytes() for path in self.folder.glob("*.journal")]
        return sum(journal.count(b"\n") for journal in journals)

    def _has_restarted(self, container: str) -> bool:
        pod = self._pod()
        statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
        (found,) = (status for status in statuses if status.name == container)
        return found.restart_count == 1 and found.state.running is not None

    def _pod(self) -> Any:
        (pod,) = self.kube.pods(self._run, "worker")
        return pod

    def _told(self, what: str) -> Any:
        return lambda: f"{what}: {self.kube.status(self._run)}"


def example(bed: Bed, file: str) -> dict[str, Any]:
    """An example's run, small, and with a name, prompts and a folder of the test's own."""
    run: dict[str, Any] = yaml.safe_load((venvs.REPOSITORY / "examples" / file).read_text())
    name, spec = {"SynthRun": "answers", "ExtractRun": "states"}[run["kind"]], run["spec"]
    run["metadata"]["name"] = name
    spec["server"]["image"] = bed.server_image
    spec["output"]["path"] = f"runs/{name}"
    if run["kind"] == "SynthRun":
        spec["datasets"] = [
            bed.dataset(dataset, bed.prompts(f"{dataset}.jsonl", rows)) for dataset, rows in ROWS.items()
        ]
        spec["sampling"]["maxCompletionTokens"] = 24
    else:
        spec["from"] = {"synthRun": {"name": "answers"}}
        spec["inFlightTokens"] = 256  # few rows at once: there is time to kill
    return run


def sampled(store: Store) -> tuple[States, States]:
    """The states of some rows, as they are stored and as the transformers library computes them."""
    library = load_model(
        JobModel(name=model.NAME, path=str(_model())),
        layers=LAYERS,
        layer_ids=store.binding.layer_ids,
        gpus=0,
    )
    rows = [store[index] for index in random.Random(1).sample(range(len(store)), SAMPLED)]
    computed = [library.states([row.token_ids])[0] for row in rows]
    names = [row.line.id for row in rows]
    stored = [row.values().copy() for row in rows]
    return dict(zip(names, stored, strict=True)), dict(zip(names, computed, strict=True))


def _model() -> Path:
    return model.build() / model.NAME
