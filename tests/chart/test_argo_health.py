"""The health script of the Argo CD page, run by the Lua that Argo CD embeds."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from draftmill_dev import cache, golang
from tests.support.helm import Manifest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "argo-cd.md"
_LUA = "github.com/yuin/gopher-lua/cmd/glua@v1.1.1"


@pytest.fixture(scope="module")
def lua() -> Path:
    return cache.build("lua", [_LUA], lambda folder: golang.toolchain().install(folder, _LUA)) / "glua"


def condition(type_: str, status: str, message: str) -> Manifest:
    return {"type": type_, "status": status, "message": message}


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (None, "Progressing"),
        ({"phase": "Pending"}, "Progressing"),
        ({"conditions": [condition("Planned", "True", "planned")], "phase": "Running"}, "Progressing"),
        ({"conditions": [condition("Complete", "True", "200 records")]}, "Healthy"),
        ({"conditions": [condition("Failed", "True", "no such model")]}, "Degraded"),
        ({"conditions": [condition("Failed", "False", "")]}, "Progressing"),
        ({"conditions": [condition("Complete", "True", "x")], "observedGeneration": 1}, "Progressing"),
        ({"conditions": [condition("Complete", "True", "x")], "observedGeneration": 2}, "Healthy"),
    ],
)
def test_argo_cd_sees_what_became_of_a_run(
    status: Manifest | None, health: str, lua: Path, tmp_path: Path
) -> None:
    run: Manifest = {"metadata": {"generation": 2}} | ({"status": status} if status is not None else {})
    assert health_of(run, lua, tmp_path) == health


def test_a_failure_brings_its_message(lua: Path, tmp_path: Path) -> None:
    failed = {"conditions": [condition("Failed", "True", "no such model")]}
    run = {"metadata": {"generation": 1}, "status": failed}
    assert health_of(run, lua, tmp_path, "message") == "no such model"


def health_of(run: Manifest, lua: Path, folder: Path, answer: str = "status") -> str:
    program = folder / "health.lua"
    program.write_text(
        f"obj = {to_lua(run)}\nlocal function health()\n{script()}\nend\nio.write(health().{answer})\n"
    )
    return subprocess.run([lua, program], check=True, capture_output=True, text=True).stdout


def script() -> str:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (data,) = (block["data"] for block in map(yaml.safe_load, blocks) if block.get("kind") == "ConfigMap")
    return str(data["resource.customizations.health.draftmill.dev_SynthRun"])


def to_lua(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{name} = {to_lua(item)}" for name, item in value.items()) + "}"
        case list():
            return "{" + ", ".join(map(to_lua, value)) + "}"
        case _:
            return json.dumps(value)
