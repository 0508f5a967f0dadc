"""Every reason that a run or a program can end or stand still with is explained on one page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_operator.observe.pods import CRASH_LOOP, CRASHED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "find-out-what-is-wrong.md").read_text()
OPERATOR, JOBS, CLI = (ROOT / side / "src" for side in ("operator", "jobs", "cli"))
OF_CONDITIONS = {OPERATOR / "draftmill_operator" / "status" / "conditions.py"}
"""What is named there are conditions alone; no run has it as its reason."""
OF_KUBERNETES = {"ErrImageNeverPull", "FailedCreate", "FailedMount", "InvalidImageName", "OOMKilled"}
"""Words of the kubelet and of controllers, passed on as they are."""
WORD = re.compile(r"[A-Z][A-Za-z]+")


def test_every_reason_that_is_raised_is_explained() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE))

    assert raised() - named == set()


def test_every_reason_that_is_explained_is_raised() -> None:
    first_cells = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]

    explained = {word for cell in first_cells for word in re.findall(r"`([A-Z][A-Za-z]+)`", cell)}

    assert explained - raised() - OF_KUBERNETES == set()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('raise JobRefusedError("NoGPU", f"{gpus} GPUs are asked for")', {"NoGPU"}),
        ('raise StoreError(\n    "StoreCorrupt", "it is"\n)', {"StoreCorrupt"}),
        ('super().__init__("StoreDiffers", f"{message}")', {"StoreDiffers"}),
        ('Problem(QUEUED, "wait")', {"Queued"}),
        ("Step(Role.PLAN, Phase.PLANNING, QUEUED, wanted)", {"Queued"}),
        ('Finished(reason=QUEUED if waits else "Other")', {"Queued", "Other"}),
        ('raise JobFailedError(failure.reason, "again")', set()),
        ('raise ValueError("Not one word")', set()),
    ],
)
def test_reasons_are_found_wherever_they_are_raised(code: str, expected: set[str]) -> None:
    assert set(_reasons(ast.parse(code), {"QUEUED": "Queued"})) == expected


def raised() -> set[str]:
    """Reasons that the code gives to errors of jobs, to problems of runs and to results."""
    trees = [
        ast.parse(path.read_text())
        for source in (OPERATOR, JOBS, CLI)
        for path in sorted(source.rglob("*.py"))
        if path not in OF_CONDITIONS
    ]
    constants = {name: value for tree in trees for name, value in _constants(tree)}
    found = {reason for tree in trees for reason in _reasons(tree, constants)}
    assert len(found) > 70, "the code is no longer written as it is searched here"
    return found | {CRASH_LOOP, *CRASHED.values()}


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Words that a module gives a name."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(value))):
                yield name, value
            case ast.AnnAssign(target=ast.Name(name), value=ast.Constant(str(value))):
                yield name, value
            case _:
                pass


def _reasons(tree: ast.Module, constants: dict[str, str]) -> Iterator[str]:
    """The first argument of an error or problem, any of a step, and every `reason=`: where it is one word."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
        if _takes_a_reason(call.func):
            given += call.args[:1]
        if isinstance(call.func, ast.Name) and call.func.id == "Step":
            given += call.args
        for value in given:
            yield from filter(WORD.fullmatch, _words(value, constants))


def _takes_a_reason(function: ast.expr) -> bool:
    match function:
        case ast.Name("Problem") | ast.Attribute(value=ast.Call(func=ast.Name("super")), attr="__init__"):
            return True
        case ast.Name(name):
            return name.endswith("Error")
        case _:
            return False


def _words(value: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    match value:
        case ast.Constant(str(word)):
            yield word
        case ast.Name(name):
            yield constants.get(name, "")
        case ast.IfExp(body=body, orelse=other):
            yield from (*_words(body, constants), *_words(other, constants))
        case _:
            pass
