"""The kinds of run on the command line: `er/k25`, `extractrun/k25`, or the bare name where it is unique."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from draftmill_api.v1alpha1.draftertrain import DrafterTrain
from draftmill_api.v1alpha1.extractrun import ExtractRun
from draftmill_api.v1alpha1.resources import RESOURCES, Resource
from draftmill_api.v1alpha1.synthrun import SynthRun
from draftmill_cli.errors import CliError

AnyRun = SynthRun | ExtractRun | DrafterTrain
_MODELS: dict[str, type[AnyRun]] = {
    "SynthRun": SynthRun,
    "ExtractRun": ExtractRun,
    "DrafterTrain": DrafterTrain,
}


@dataclass(frozen=True)
class RunName:
    """A run of a known kind."""

    resource: Resource
    name: str

    @property
    def short(self) -> str:
        """As it can be written in every command: `er/k25`."""
        return f"{self.resource.short_names[0]}/{self.name}"


def split(text: str) -> tuple[Resource | None, str]:
    """The kind that stands before the slash, if there is one, and the name.

    Raises:
        CliError: There is no such kind.
    """
    prefix, slash, name = text.rpartition("/")
    if not slash:
        return None, text
    for resource in RESOURCES:
        if prefix.lower() in {resource.singular, resource.plural, *resource.short_names}:
            return resource, name
    known = ", ".join(f"{resource.short_names[0]}/" for resource in RESOURCES)
    raise CliError(f"{prefix}/ is no kind of run; there are {known}")


def parse_run(manifest: dict[str, Any]) -> AnyRun:
    """A run from its JSON; fields of a newer version are left out.

    Raises:
        CliError: This version cannot read it.
    """
    try:
        return _MODELS[manifest["kind"]].model_validate(manifest, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CliError(
            f"this version of draftmill cannot read the run ({where}: {first['msg']}); "
            "install the version that the cluster has"
        ) from error
