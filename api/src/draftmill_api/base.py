"""The pydantic base of every Draftmill type, and Kubernetes' own scalar forms."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

SENTENCE: Final = "x-draftmill-sentence"
"""JSON schema keyword: the API server's answer when the bounds or the pattern beside it are missed."""
TERMS: Final = "x-draftmill-terms"
"""JSON schema keyword: CEL terms that must hold too, with the same answer."""
VALIDATIONS: Final = "x-kubernetes-validations"

_DURATION_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_QUANTITY_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTPE")},
}
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Rule(NamedTuple):
    """A CEL rule of the API server and the sentence it answers with."""

    rule: str
    message: str


def says(sentence: str, *terms: str) -> JsonDict:
    """JSON schema extra that gives bounds and pattern, and further CEL terms, a sentence for people."""
    return {SENTENCE: sentence, TERMS: [*terms]}


class ApiModel(BaseModel):
    """A frozen type whose JSON names are camelCase and which refuses unknown fields.

    `EXACTLY_ONE_OF` is checked here and, through `cel_rules`, by the API server; `RULES` only by the latter.
    """

    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ()
    RULES: ClassVar[tuple[Rule, ...]] = ()
    CALLED: ClassVar[str] = ""
    """How messages call it, where the type's name is no word."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_inf_nan="null",
    )

    @model_validator(mode="after")
    def _has_exactly_one(self) -> Self:
        chosen = [name for name in self.EXACTLY_ONE_OF if getattr(self, name) is not None]
        if self.EXACTLY_ONE_OF and len(chosen) != 1:
            raise ValueError(_exactly_one_message(type(self)))
        return self

    @classmethod
    def cel_rules(cls) -> tuple[Rule, ...]:
        """The rules that the CRD carries for this type."""
        if not cls.EXACTLY_ONE_OF:
            return cls.RULES
        present = ", ".join(f"has(self.{name})" for name in _json_names(cls, cls.EXACTLY_ONE_OF))
        exactly_one = Rule(f"[{present}].filter(x, x).size() == 1", _exactly_one_message(cls))
        return (exactly_one, *cls.RULES)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """The JSON schema, with the type's CEL rules as the API server reads them."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if rules := cls.cel_rules():
            schema[VALIDATIONS] = [rule._asdict() for rule in rules]
        return schema

    def to_json(self) -> dict[str, Any]:
        """The JSON form: camelCase names, fields that are None left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _json_names(model: type[ApiModel], fields: tuple[str, ...]) -> list[str]:
    return [model.model_fields[field].alias or field for field in fields]


def _exactly_one_message(model: type[ApiModel]) -> str:
    *first, last = _json_names(model, model.EXACTLY_ONE_OF)
    name = model.__name__
    noun = name.removesuffix("Spec") if name.endswith("Spec") else name.removeprefix("Job").lower()
    noun = model.CALLED or noun
    return f"a {noun} needs exactly one of {', '.join(first)} and {last}"


def _number_to_text(value: Any) -> Any:
    """YAML written by hand has `1.0` where the API wants `"1.0"`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    return str(value)


Duration = Annotated[
    str,
    Field(
        pattern=r"^([0-9]{1,7}(h|m|s|ms))+$",
        max_length=32,
        json_schema_extra=says(
            "write a span of time above zero, like 90s, 45m or 1h30m (a day is 24h)",
            "duration(self) > duration('0s')",
        ),
    ),
]
"""A span of time as Kubernetes writes it: `90s`, `45m`, `1h30m`. Days do not exist: write `168h`."""

Quantity = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
        max_length=32,
        json_schema_extra=says("write a Kubernetes quantity like 500m or 16Gi"),
    ),
    BeforeValidator(_number_to_text),
]
"""A Kubernetes resource quantity: `500m`, `16Gi`."""

_DECIMAL: Final = r"^[0-9]+(\.[0-9]+)?$"

Temperature = Annotated[
    str,
    Field(
        pattern=_DECIMAL,
        max_length=16,
        json_schema_extra=says('write a number from 0 to 10 in quotes, like "0.6"', "double(self) <= 10.0"),
    ),
    BeforeValidator(_number_to_text),
]
"""A temperature kept as text, since the Kubernetes API has no floats."""

Fraction = Annotated[
    str,
    Field(
        pattern=_DECIMAL,
        max_length=16,
        json_schema_extra=says(
            'write a number above 0 and at most 1 in quotes, like "0.95"',
            "double(self) > 0.0",
            "double(self) <= 1.0",
        ),
    ),
    BeforeValidator(_number_to_text),
]
"""A fraction or probability kept as text, since the Kubernetes API has no floats."""

_SCIENTIFIC: Final = r"^[0-9]+(\.[0-9]+)?([eE]-?[0-9]{1,2})?$"

PositiveNumber = Annotated[
    str,
    Field(
        pattern=_SCIENTIFIC,
        max_length=16,
        json_schema_extra=says(
            'write a number above 0 in quotes, like "0.5" or "1e-4"', "double(self) > 0.0"
        ),
    ),
    BeforeValidator(_number_to_text),
]
"""A number above zero kept as text, since the Kubernetes API has no floats."""

NonNegativeNumber = Annotated[
    str,
    Field(
        pattern=_SCIENTIFIC,
        max_length=16,
        json_schema_extra=says('write a number of at least 0 in quotes, like "0.05" or "1e-4"'),
    ),
    BeforeValidator(_number_to_text),
]
"""A number that is not negative kept as text, since the Kubernetes API has no floats."""

ANYTHING: Final[JsonDict] = {"x-kubernetes-preserve-unknown-fields": True}
"""Schema of a value that is kept as it is. CEL cannot see it, but compares it as part of what holds it."""

KubernetesObject = Annotated[dict[str, Any], Field(json_schema_extra={"additionalProperties": ANYTHING})]
"""A piece of the Kubernetes API that is passed through as it is and checked when the pod is made."""


def seconds(duration: str) -> float:
    """The length of a `Duration` in seconds.

    Raises:
        ValueError: the text is not a duration.
    """
    parts = _DURATION_PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"{duration!r} is not a duration; write it like 90s, 45m or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def bytes_of(quantity: str) -> int:
    """The bytes that a `Quantity` names, rounded up.

    Raises:
        ValueError: The text is not a quantity.
    """
    match = _QUANTITY_PARTS.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity; write it like 500M or 16Gi")
    return math.ceil(Decimal(match[1]) * _FACTORS[match[2] or ""])
