"""The demos on a cluster of its own on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from draftmill_dev import (
    cluster,
    console,
    environment,
    images,
    model,
    prompts,
    release,
    toolchain,
    venvs,
    volumes,
)
from draftmill_dev.demo import ahead, pipeline, run
from draftmill_dev.demo.view import Run
from draftmill_dev.errors import DevError
from draftmill_dev.kubectl import Kubectl

_NAMESPACE = "default"


@dataclass(frozen=True)
class Stage:
    """A cluster with Draftmill, and prompts on its data volume."""

    here: cluster.Cluster
    kubectl: Kubectl
    tools: Path
    """Folder of this checkout's commands."""

    @property
    def data(self) -> Path:
        """The data volume on this machine."""
        return self.here.volumes / volumes.DATA


def main(name: str = cluster.DEFAULT_NAME, rows: int = prompts.ROWS) -> None:
    """Builds what is missing, starts the cluster, installs Draftmill and shows a run.

    A second demo is a new run: the answers of the one before it are removed.

    Args:
        name: The cluster's name.
        rows: Prompts in each of the two datasets.

    Raises:
        DevError: A step failed.
    """
    stage = _set_up(name, rows, (run.RUN,), run.OUTPUT)
    output = stage.data / run.OUTPUT
    last_line = run.start_and_show(
        stage.kubectl, run.EXAMPLE.read_text(), lambda: _draftmill(stage, "sample", output, "--count", "2")
    )
    _say_how_to_go_on(stage, output)
    print(last_line, flush=True)


def main_pipeline(name: str = cluster.DEFAULT_NAME, rows: int = pipeline.ROWS) -> None:
    """The same with three runs, from prompts to a drafter that is measured at work.

    Args:
        name: The cluster's name.
        rows: Prompts in each of the two datasets.

    Raises:
        DevError: A step failed.
    """
    stage = _set_up(name, rows, pipeline.RUNS, pipeline.OUTPUT)
    drafter = stage.data / pipeline.DRAFTER
    last_line = pipeline.start_and_show(
        stage.kubectl, lambda: _draftmill(stage, "lineage", drafter, "--root", stage.data)
    )
    console.say(f"""
The drafter lies in {drafter}, with its model card:
    {drafter}/drafter/vllm/README.md

Keep looking:
    {_environment(stage)}
    kubectl describe draftertrain {pipeline.NAME}

Stop: {_stop_command(stage.here.name)}      (the drafter stays)
""")
    print(last_line, flush=True)


def _set_up(name: str, rows: int, runs: Sequence[Run], output: str) -> Stage:
    """Builds what is missing; starts the cluster; clears away what earlier runs of these names left."""
    cluster.check_host(name)
    ahead.begin(_beside_the_cluster(rows))
    here = cluster.up(name)
    kubectl = Kubectl(here.programs.kubectl, here.programs.helm, here.kubeconfig, _NAMESPACE)
    with console.step("Model server: vLLM for CPUs and torch") as step:
        if not environment.is_built():
            step.note("6 GB, about 2 minutes")
        server_environment = environment.build()
    with console.step(f"Model {model.NAME} and prompts"):
        models, prompt_files = model.build(), prompts.build(rows)
    with console.step("Tools for this checkout (.venv)"):
        tools = venvs.development() / "bin"
    operator, jobs = _images(here)
    with console.step("Volumes"):
        folders = volumes.lay_out(here.volumes, models, server_environment)
        volumes.create_claims(kubectl, folders)
    with console.step(f"helm upgrade --install {release.NAME} charts/draftmill"):
        image_values = release.local_images(operator, jobs)
        pod_defaults = release.mounted_environment()
        release.install(kubectl, {"images": image_values, "podDefaults": pod_defaults})
    stage = Stage(here, kubectl, tools)
    with console.step("Prompts in place, an earlier demo cleared away"):
        run.clear(kubectl, runs)
        shutil.rmtree(stage.data / output, ignore_errors=True)
        _put_prompts(stage.data, prompt_files)
    return stage


def _beside_the_cluster(rows: int) -> list[ahead.Build]:
    """Everything but the cluster, in an order in which downloads come early."""
    return [
        partial(toolchain.apt_install, cluster.PACKAGES),
        environment.build,
        venvs.development,
        *(partial(images.build, name) for name in images.NAMES),
        model.build,
        partial(prompts.build, rows),
    ]


def _images(here: cluster.Cluster) -> tuple[images.Image, images.Image]:
    built = {}
    for name in images.NAMES:
        with console.step(f"Image draftmill-{name}"):
            built[name] = images.build(name)
            images.load(here, built[name])
    return built[images.OPERATOR], built[images.JOBS]


def _put_prompts(data: Path, prompt_files: Path) -> None:
    target = data / run.PROMPTS
    target.mkdir(exist_ok=True)
    for file in prompt_files.iterdir():
        shutil.copyfile(file, target / file.name)
    for path in (target, *target.iterdir()):
        os.chown(path, volumes.JOB_USER, volumes.JOB_USER)


def _draftmill(stage: Stage, *arguments: str | Path) -> str:
    command = [stage.tools / "draftmill", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevError(f"draftmill {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _short(path: Path) -> str:
    """A path as a shell takes it, with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _stop_command(name: str) -> str:
    if name == cluster.DEFAULT_NAME:
        return "make cluster-down"
    return f"PYTHONPATH=dev python3 -m draftmill_dev cluster-down --name {name}"


def _environment(stage: Stage) -> str:
    path = f"{_short(stage.here.programs.bin)}:{_short(stage.tools)}:$PATH"
    return f"export KUBECONFIG={stage.here.kubeconfig} PATH={path}"


def _say_how_to_go_on(stage: Stage, output: Path) -> None:
    console.say(f"""
The answers lie in {output}:
    <dataset>/raw_responses.jsonl   one record a line, with the exact token ids
    summary.json, manifest.json     counts, hashes, what the data was made of

Keep looking:
    {_environment(stage)}
    kubectl describe synthrun {run.RUN.name}
    kubectl explain synthrun.spec
    draftmill check {output}

Try next: docs/tutorial.md from step 4 on, with your own copy of examples/synthrun-demo.yaml.
Stop: {_stop_command(stage.here.name)}      (the answers stay)
""")
