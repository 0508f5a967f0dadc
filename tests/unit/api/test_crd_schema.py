from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import Field

from draftmill_api.base import ApiModel, says
from draftmill_api.crd import Schema, root_schema, structural
from draftmill_api.v1alpha1.resources import RESOURCES, Resource

EACH_RESOURCE = pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)


@EACH_RESOURCE
def test_every_field_explains_itself(resource: Resource) -> None:
    schema = root_schema(resource)
    silent = [
        path
        for path, field in fields(schema)
        if "description" not in field and not path.startswith("metadata") and not is_pod_api(path)
    ]
    assert silent == []


@EACH_RESOURCE
def test_every_list_map_and_text_is_bounded(resource: Resource) -> None:
    unbounded = [path for path, field in fields(root_schema(resource)) if not is_bounded(path, field)]
    assert unbounded == []


@EACH_RESOURCE
def test_numbers_are_integers(resource: Resource) -> None:
    assert [path for path, field in fields(root_schema(resource)) if field.get("type") == "number"] == []


@EACH_RESOURCE
def test_status_has_no_defaults_since_nobody_observed_them(resource: Resource) -> None:
    status = root_schema(resource)["properties"]["status"]
    assert [path for path, field in fields(status) if "default" in field] == []


@EACH_RESOURCE
def test_columns_read_scalar_fields_that_exist(resource: Resource) -> None:
    known = {f".{path}": field for path, field in fields(root_schema(resource))}
    known[".metadata.creationTimestamp"] = {"type": "string"}
    for column in resource.columns:
        assert known[column.path]["type"] in ("string", "integer"), column


def test_an_optional_field_is_left_out_and_not_null() -> None:
    class Optional(ApiModel):
        number: int | None = Field(default=None, ge=1, description="A number.")

    assert of(Optional)["properties"]["number"] == {
        "description": "A number.",
        "type": "integer",
        "minimum": 1,
        "format": "int64",
    }


def test_an_object_with_defaults_inside_is_filled_in_when_left_out() -> None:
    class Inner(ApiModel):
        number: int = 3

    class Outer(ApiModel):
        inner: Inner = Field(default_factory=Inner)
        given: Inner

    properties = of(Outer)["properties"]
    assert properties["inner"]["default"] == {}
    assert "default" not in properties["given"]


def test_a_bound_with_a_sentence_becomes_a_rule_with_that_sentence() -> None:
    class Bounded(ApiModel):
        number: int = Field(ge=1, le=9, json_schema_extra=says("from 1 to 9"))

    number = of(Bounded)["properties"]["number"]
    assert number["x-kubernetes-validations"] == [
        {"rule": "self >= 1 && self <= 9", "message": "from 1 to 9"}
    ]
    assert "minimum" not in number


def test_a_sentence_without_a_bound_is_a_mistake() -> None:
    class Unbounded(ApiModel):
        text: str = Field(json_schema_extra=says("something"))

    with pytest.raises(ValueError, match="no bound or pattern"):
        of(Unbounded)


def test_rules_of_a_type_stand_where_the_type_is_used() -> None:
    class Choice(ApiModel):
        EXACTLY_ONE_OF = ("left_hand", "right")

        left_hand: str | None = None
        right: str | None = None

    class Outer(ApiModel):
        choice: Choice | None = Field(default=None, description="A choice.")

    choice = of(Outer)["properties"]["choice"]
    assert choice["description"] == "A choice."
    assert [rule["message"] for rule in choice["x-kubernetes-validations"]] == [
        "a choice needs exactly one of leftHand and right"
    ]


def of(model: type[ApiModel]) -> Schema:
    schema = model.model_json_schema(by_alias=True)
    return structural(schema, schema.get("$defs", {}), with_defaults=True)


def fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field, list item (`name[]`) and map value (`name{}`) below a schema, by its path."""
    for name, child in schema.get("properties", {}).items():
        yield from _with_below(f"{prefix}{name}", child)


def _with_below(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    yield from fields(schema, f"{path}.")
    if "items" in schema:
        yield from _with_below(f"{path}[]", schema["items"])
    if "type" in schema.get("additionalProperties", {}):
        yield from _with_below(f"{path}{{}}", schema["additionalProperties"])


def is_pod_api(path: str) -> bool:
    """Items of the Pod API's own lists and maps are explained by their list."""
    return path.endswith(("[]", "{}")) or ("[]." in path and (".pod." in path or "resourceClaims" in path))


def is_bounded(path: str, field: Schema) -> bool:
    if path in ("apiVersion", "kind"):
        return True
    if field.get("type") == "array":
        return "maxItems" in field
    if field.get("type") == "string":
        return "maxLength" in field or "enum" in field
    return "type" not in field.get("additionalProperties", {}) or "maxProperties" in field
