from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, Helm, HelmError, Manifest

BAD: dict[str, tuple[Manifest, str]] = {
    "a misspelt value": ({"podDefault": {}}, "podDefault"),
    "a misspelt value deep inside": ({"images": {"job": {"repo": "x"}}}, "repo"),
    "a word where a switch is": ({"crds": {"install": "yes please"}}, "/crds/install"),
    "an unknown pull policy": ({"images": {"pullPolicy": "Sometimes"}}, "/images/pullPolicy"),
    "an unknown log level": ({"logLevel": "Chatty"}, "/logLevel"),
    "a relative hostPath prefix": ({"hostPathPrefixes": ["mnt"]}, "/hostPathPrefixes/0"),
    "the root as hostPath prefix": ({"hostPathPrefixes": ["/"]}, "/hostPathPrefixes/0"),
    "no namespace name": ({"watchNamespaces": ["Team A"]}, "/watchNamespaces/0"),
    "a namespace twice": ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
    "a pod default that pods do not have": (
        {"podDefaults": {"server": {"hostNetwork": True}}},
        "/podDefaults/server",
    ),
    "a variable without a name": (
        {"podDefaults": {"job": {"env": [{"value": "x"}]}}},
        "/podDefaults/job/env/0",
    ),
    "a tag as digest": ({"images": {"job": {"digest": "v1"}}}, "/images/job/digest"),
    "no API server port": ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
}


def test_the_chart_has_no_lint(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize(("values", "place"), BAD.values(), ids=BAD)
def test_a_wrong_value_is_refused_and_named(values: Manifest, place: str, helm: Helm) -> None:
    with pytest.raises(HelmError) as refused:
        helm.template(values)
    assert "values don't meet the specifications of the schema" in str(refused.value)
    assert place in str(refused.value)


def test_values_and_schema_have_the_same_keys() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert without_global(keys_of_schema(schema)) == keys_of_values(values, schema)


def test_a_foreign_service_account_needs_a_name(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"serviceAccount\.name is needed"):
        helm.template({"serviceAccount": {"create": False}})


def keys_of_schema(schema: Any) -> Any:
    """Keys of objects that are closed; below open ones anything may stand."""
    if schema.get("additionalProperties") is not False:
        return None
    return {name: keys_of_schema(child) for name, child in schema["properties"].items()}


def keys_of_values(values: Any, schema: Any) -> Any:
    if schema.get("additionalProperties") is not False:
        return None
    return {name: keys_of_values(values[name], schema["properties"].get(name, {})) for name in values}


def without_global(keys: Manifest) -> Manifest:
    """`global` is Helm's own: it comes from a chart around this one."""
    return {name: below for name, below in keys.items() if name != "global"}
