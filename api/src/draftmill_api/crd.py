"""CustomResourceDefinitions made from the types: JSON schema -> structural OpenAPI v3. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from draftmill_api.base import SENTENCE, TERMS, VALIDATIONS, Rule
from draftmill_api.names import GROUP, VERSION
from draftmill_api.v1alpha1.resources import Column, Resource

Schema = dict[str, Any]

_KEPT: Final = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    VALIDATIONS,
)
"""Keywords that a structural schema and a JSON schema share; `title` and the like have no use there."""

_BOUNDS: Final = {
    "pattern": "self.matches(r'{}')",
    "minLength": "self.size() >= {}",
    "minimum": "self >= {}",
    "maximum": "self <= {}",
}
"""Keywords whose own messages are for machines, and the CEL that says the same."""


def custom_resource_definition(resource: Resource) -> dict[str, Any]:
    """The CustomResourceDefinition of a resource, as `kubectl apply` takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.singular,
                "shortNames": list(resource.short_names),
                "categories": ["draftmill"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_printer_column(column) for column in resource.columns],
                    "schema": {"openAPIV3Schema": root_schema(resource)},
                }
            ],
        },
    }


def root_schema(resource: Resource) -> Schema:
    """The structural schema of a whole object."""
    generated = resource.model.model_json_schema(by_alias=True)
    definitions: Mapping[str, Schema] = generated["$defs"]
    spec, status = (
        structural(generated["properties"][part], definitions, with_defaults=part == "spec")
        for part in ("spec", "status")
    )
    return {
        "description": generated["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": f"Version of the object's form: {GROUP}/{VERSION}.",
            },
            "kind": {"type": "string", "description": f"Kind of the object: {resource.kind}."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        VALIDATIONS: [rule._asdict() for rule in resource.root_rules],
    }


def structural(schema: Schema, definitions: Mapping[str, Schema], *, with_defaults: bool) -> Schema:
    """One JSON schema as a structural schema: references inlined, optional instead of nullable.

    With `with_defaults`, an object whose fields have defaults gets the default `{}`, so that the API server
    fills them in when the object is left out. A status has no defaults: nobody observed them.
    """
    source = _resolved(schema, definitions)
    result: Schema = {key: source[key] for key in _KEPT if key in source}
    if not with_defaults or result.get("default") is None:
        result.pop("default", None)
    elif "description" in result:
        result["description"] += default_sentence(result["default"])
    if result.get("type") == "integer":
        result["format"] = "int64"
    if SENTENCE in source:
        _say(source[SENTENCE], source[TERMS], result)
    if "items" in source:
        result["items"] = structural(source["items"], definitions, with_defaults=with_defaults)
    values = source.get("additionalProperties")
    if isinstance(values, dict):
        result["additionalProperties"] = structural(values, definitions, with_defaults=with_defaults)
    if "properties" in source:
        required = source.get("required", [])
        result["properties"] = {}
        for name, value in source["properties"].items():
            child = structural(value, definitions, with_defaults=with_defaults)
            if with_defaults and "$ref" in value and name not in required and _has_defaults(child):
                child["default"] = {}
            result["properties"][name] = child
    return result


def default_sentence(value: Any) -> str:
    """What a field's description says about its default, since `kubectl explain` shows descriptions alone."""
    return f" Defaults to {value if isinstance(value, str) else json.dumps(value)}."


def _has_defaults(schema: Schema) -> bool:
    return any("default" in child for child in schema.get("properties", {}).values())


def _resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The schema with its reference and its `or null` put into it; what stands beside them wins."""
    if "$ref" in schema:
        inner = definitions[schema["$ref"].removeprefix("#/$defs/")]
    elif "anyOf" in schema:
        (inner,) = (option for option in schema["anyOf"] if option != {"type": "null"})
        inner = _resolved(inner, definitions)
    else:
        return schema
    merged = {**inner, **{key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}}
    if rules := [*inner.get(VALIDATIONS, []), *schema.get(VALIDATIONS, [])]:
        merged[VALIDATIONS] = rules
    return merged


def _say(sentence: str, further: list[str], schema: Schema) -> None:
    """Turn bounds into a rule with a sentence; `maxLength` stays, CEL's cost estimate needs it."""
    terms = [cel.format(schema.pop(key)) for key, cel in _BOUNDS.items() if key in schema]
    if not terms:
        raise ValueError(f"no bound or pattern stands beside the sentence {sentence!r}")
    rule = Rule(" && ".join([*terms, *further]), sentence)
    schema[VALIDATIONS] = [rule._asdict(), *schema.get(VALIDATIONS, [])]


def _printer_column(column: Column) -> dict[str, Any]:
    printed: dict[str, Any] = {
        "name": column.name,
        "type": column.type.value,
        "jsonPath": column.path,
        "description": column.description,
    }
    if column.wide:
        printed["priority"] = 1
    return printed
