"""`draftmill retry`: a run that Failed, or could not evaluate its drafter, again from what is on disk."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import yaml

from draftmill_api.v1alpha1.status import ConditionStatus, ConditionType, Phase
from draftmill_cli.cluster import connect
from draftmill_cli.errors import CliError
from draftmill_cli.kinds import AnyRun, parse_run
from draftmill_cli.view import phase_of

_KEPT = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")


def run(args: Namespace) -> int:
    """Deletes and re-creates the run; if creating fails, its manifest is printed so that nothing is lost."""
    cluster = connect(args)
    name = cluster.find(args.name)
    old = cluster.manifest(name)
    found = parse_run(old)
    phase = phase_of(found)
    if phase is not Phase.FAILED and not (phase is Phase.SUCCEEDED and lacks_evaluation(found)):
        raise CliError(
            f"{args.name} is {phase}: only a Failed run is retried, or one whose drafter was not evaluated"
        )
    new = fresh(old)
    try:
        cluster.replace(name, new, old["metadata"]["uid"])
    except CliError:
        print(f"# The run's manifest, for `kubectl apply -f`:\n{yaml.safe_dump(new)}", file=sys.stderr)
        raise
    print(f"{cluster.title(name)} starts again; `draftmill watch {args.name}` follows it.")
    return 0


def lacks_evaluation(run: AnyRun) -> bool:
    """Whether an evaluation was asked of it and has not come to a result."""
    conditions = run.status.conditions if run.status is not None else []
    evaluated = (each for each in conditions if each.type == ConditionType.EVALUATED)
    return any(each.status is ConditionStatus.FALSE for each in evaluated)


def fresh(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a user would apply to make the run: without status and what the API server adds."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key in _KEPT}
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": metadata,
        "spec": manifest["spec"],
    }
