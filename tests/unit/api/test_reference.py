"""The generated pages say what a spec is refused for, beside how it is written."""

from __future__ import annotations

import pytest

from draftmill_api.crd import root_schema
from draftmill_api.v1alpha1.extractrun import ExtractRunSpec
from draftmill_api.v1alpha1.resources import EXTRACT_RUN, RESOURCES, SYNTH_RUN, Resource
from draftmill_dev.reference import reference_page


def page(resource: Resource) -> str:
    return reference_page(resource, root_schema(resource))


def refused(resource: Resource) -> dict[str, str]:
    """Where each sentence of the table belongs."""
    table = page(resource).split("### Refused at once")[1].split("### Pod overrides")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    return {row[0].removeprefix("| "): row[1].removesuffix(" |") for row in rows}


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_rule_of_a_spec_stands_on_its_page(resource: Resource) -> None:
    rules = root_schema(resource)["properties"]["spec"]["x-kubernetes-validations"]

    assert {rule["message"] for rule in rules} <= refused(resource).keys()


def test_a_field_that_one_kind_refuses_is_so_on_that_kinds_page_alone() -> None:
    sentence = "server.contextLength follows from the longest row; remove it and use maxRowTokens"
    assert sentence in {rule.message for rule in ExtractRunSpec.RULES}

    assert refused(EXTRACT_RUN)[sentence] == "`spec`"
    assert sentence not in refused(SYNTH_RUN)


def test_a_rule_of_a_type_names_every_place_where_the_type_is_used() -> None:
    volume = "a volume needs exactly one of persistentVolumeClaim, hostPath and nfs"

    assert refused(SYNTH_RUN)[volume] == "`spec.storage.models`, `spec.storage.data`"
    source = "a source needs exactly one of huggingFace, file and folder"
    assert refused(SYNTH_RUN)[source] == "`spec.datasets[].source`"
