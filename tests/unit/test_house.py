"""What keeps the house in order: names that must not exist, pinned requirements, one test command."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill_api.v1alpha1 import SynthRun
from draftmill_api.v1alpha1.draftertrain import DrafterTrain
from draftmill_api.v1alpha1.extractrun import ExtractRun

ROOT = Path(__file__).parents[2]
SOURCES = ("api/src", "operator/src", "jobs/src", "cli/src", "dev")
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
DOCKERFILES = sorted((ROOT / "dev" / "images").glob("Dockerfile.*"))
# These run in the development environment; everything else in dev/ runs on a bare machine.
NEED_THE_DEVELOPMENT_ENVIRONMENT = {"generate.py", "phases.py", "reference.py"}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)")
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==\S+( ;.*)? \\$")


def test_nothing_hides_the_standard_librarys_operator() -> None:
    shadows = [ROOT / "operator" / "__init__.py", *(ROOT / source / "operator.py" for source in SOURCES)]

    assert [path for path in (*shadows, ROOT / "operator.py") if path.exists()] == []


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_a_requirement_file_names_no_index_and_pins_everything_with_a_hash(file: Path) -> None:
    text = file.read_text()
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith(("#", "--hash="))]

    assert "://" not in text
    assert [line for line in lines if not PINNED.match(line)] == []


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_a_dockerfile_names_no_registrys_host(file: Path) -> None:
    images = re.findall(r"^(?:ARG \w+=|FROM )(\S+/\S+)", file.read_text(), re.MULTILINE)

    assert [image for image in images if "." in image.partition("/")[0]] == []


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_an_image_runs_as_nobody(file: Path) -> None:
    assert re.findall(r"^USER (.*)$", _stages(file)[-1], re.MULTILINE) == ["65532:65532"]


@pytest.mark.parametrize("name", ["operator", "jobs"])
def test_an_image_is_built_in_stages_and_imports_nothing_from_the_working_directory(name: str) -> None:
    *earlier, last = _stages(ROOT / "dev/images" / f"Dockerfile.{name}")
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", last, re.MULTILINE)

    assert earlier
    assert not re.findall(r"^RUN ", last, re.MULTILINE)
    assert json.loads(entrypoint)[:2] == ["python", "-P"]


@pytest.mark.parametrize("extra", ["operator", "jobs", "dev"])
def test_a_requirement_file_has_every_dependency_of_its_extra(extra: str) -> None:
    pinned = _pinned(ROOT / "requirements" / f"{extra}.txt")

    assert _dependencies(extra) - pinned == set()


@pytest.mark.parametrize("name", ["operator", "jobs"])
def test_operator_and_generator_install_without_torch(name: str) -> None:
    assert "torch" not in _pinned(ROOT / "requirements" / f"{name}.txt")


@pytest.mark.parametrize(
    "file", sorted((ROOT / "dev").rglob("draftmill_dev/**/*.py")), ids=lambda file: file.name
)
def test_a_bare_python_is_enough_to_start(file: Path) -> None:
    if file.name in NEED_THE_DEVELOPMENT_ENVIRONMENT:
        return
    modules = {name.partition(".")[0] for name in _imports(file)}

    assert modules - sys.stdlib_module_names - {"draftmill_dev"} == set()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    ci = (ROOT / ".ci" / "run").read_text()

    assert "\n    make test\n" in readme
    assert re.search(r"^make\b.* test$", ci, re.MULTILINE)
    assert re.search(r"^make\b.* lint\b", ci, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_links_to_pages_that_are_there(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").glob("synthrun-*.yaml")), ids=lambda file: file.name
)
def test_an_example_is_a_valid_run(file: Path) -> None:
    run = SynthRun.model_validate(yaml.safe_load(file.read_text()))

    assert run.spec.datasets


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").glob("extractrun-*.yaml")), ids=lambda file: file.name
)
def test_an_example_of_an_extract_run_takes_the_output_of_another_example(file: Path) -> None:
    run = ExtractRun.model_validate(yaml.safe_load(file.read_text()))

    earlier = run.spec.from_.synth_run
    names = [yaml.safe_load(each.read_text())["metadata"]["name"] for each in file.parent.glob("synthrun-*")]
    assert earlier is not None
    assert earlier.name in names


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").glob("draftertrain-*.yaml")), ids=lambda file: file.name
)
def test_an_example_of_a_training_takes_the_output_of_another_example(file: Path) -> None:
    run = DrafterTrain.model_validate(yaml.safe_load(file.read_text()))

    earlier = run.spec.from_.extract_run
    names = [
        yaml.safe_load(each.read_text())["metadata"]["name"] for each in file.parent.glob("extractrun-*")
    ]
    assert earlier is not None
    assert earlier.name in names


def test_the_demos_run_is_the_one_that_the_demo_follows() -> None:
    from draftmill_dev.demo import run as demo

    manifest: dict[str, Any] = yaml.safe_load(demo.EXAMPLE.read_text())

    assert (manifest["kind"], manifest["metadata"]["name"]) == (demo.RUN.kind, demo.RUN.name)
    assert manifest["spec"]["output"]["path"] == demo.OUTPUT


def _stages(dockerfile: Path) -> list[str]:
    """What follows each FROM."""
    return re.split(r"^FROM ", dockerfile.read_text(), flags=re.MULTILINE)[1:]


def _pinned(file: Path) -> set[str]:
    found = (PINNED.match(line) for line in file.read_text().splitlines())
    return {match.group(1) for match in found if match}


def _dependencies(extra: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names: set[str] = set()
    for requirement in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        own = re.match(r"^draftmill\[(.*)\]$", requirement)
        if own:
            names |= {name for part in own.group(1).split(",") for name in _dependencies(part)}
        else:
            names.add(re.split(r"[<>=!~\[; ]", requirement)[0].lower())
    return names


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found
