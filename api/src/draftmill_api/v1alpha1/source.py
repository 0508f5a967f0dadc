"""Where the prompts of a dataset come from, and which of them are taken."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from draftmill_api.base import ApiModel, Rule, says
from draftmill_api.v1alpha1.shared import NO_WAY_UP, RelativePath

FolderPattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z0-9._*?\[\]!][A-Za-z0-9._*?\[\]!/@+=-]*$",
        json_schema_extra=NO_WAY_UP
        | says("write a pattern of file names below the folder, like *.jsonl or 2026-*/**/*.parquet"),
    ),
]
"""Which files of a folder: `*` and `?` stand for any characters but `/`, `**` for any folders."""

ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
"""Name of a column, or names that lead to it with dots between."""

_CHARACTERS_CROSSED: Final = "filters.minCharacters cannot be larger than filters.maxCharacters"
_TURNS_CROSSED: Final = "filters.minTurns cannot be larger than filters.maxTurns"
_TWO_PROMPTS: Final = "fields.messages and fields.prompt both say where the prompt is: give one of them"


class HuggingFaceDataset(ApiModel):
    """A dataset on the Hugging Face hub, or a local copy in its cache."""

    repo: str = Field(
        min_length=1, max_length=256, description="Repository, for example mlabonne/open-perfectblend."
    )
    split: str = Field(default="train", min_length=1, max_length=128, description="Split of the dataset.")
    config: str | None = Field(
        default=None, max_length=128, description="Configuration (subset) of the dataset."
    )
    revision: str | None = Field(
        default=None,
        max_length=128,
        description="Branch, tag or commit; the default branch when left out. The commit that it names when "
        "it is first read is written to source.json in the dataset's folder, and kept from then on.",
    )


class FileSource(ApiModel):
    """A file of prompts on the data volume."""

    path: RelativePath = Field(
        description="Path below storage.data of a .jsonl, .json, .parquet or .arrow file; the first two may "
        "also be .gz or .zst.",
    )


class FolderSource(ApiModel):
    """A folder with files of prompts on the data volume, read in the order of their paths."""

    path: RelativePath = Field(description="Path of the folder below storage.data.")
    pattern: FolderPattern = Field(
        default="**/*",
        description="Which of its files are read: * and ? stand for characters but /, ** for any folders. "
        "Hidden files and files of other kinds than a file source takes are left out.",
    )


class Source(ApiModel):
    """Where prompts come from: exactly one of huggingFace, file and folder."""

    EXACTLY_ONE_OF = ("hugging_face", "file", "folder")

    hugging_face: HuggingFaceDataset | None = Field(
        default=None, description="A dataset loaded with the Hugging Face datasets library."
    )
    file: FileSource | None = Field(default=None, description="A file on the data volume.")
    folder: FolderSource | None = Field(default=None, description="A folder on the data volume.")


class Fields(ApiModel):
    """What the source calls its columns, where that is not what rows are looked through for.

    A name with dots leads into objects: body.messages is the field messages of the column body.
    """

    RULES = (Rule("!has(self.messages) || !has(self.prompt)", _TWO_PROMPTS),)

    messages: ColumnName | None = Field(
        default=None, description="Column that holds the conversation: a list of turns, or its JSON."
    )
    prompt: ColumnName | None = Field(default=None, description="Column that holds the prompt as text.")
    system: ColumnName | None = Field(
        default=None, description="Column that holds the system prompt, put before the other turns."
    )
    tools: ColumnName | None = Field(
        default=None, description="Column that holds the tools offered: a list of objects, or its JSON."
    )
    role: ColumnName | None = Field(default=None, description="Field of a turn that says who speaks.")
    content: ColumnName | None = Field(default=None, description="Field of a turn that says what.")

    @model_validator(mode="after")
    def _has_one_prompt(self) -> Self:
        if self.messages is not None and self.prompt is not None:
            raise ValueError(_TWO_PROMPTS)
        return self


class RoleShape(StrEnum):
    """Which order of roles a conversation must have."""

    ANY = "Any"
    STARTS_WITH_USER = "StartsWithUser"
    """The user speaks first, but for a system prompt."""
    ALTERNATING = "Alternating"
    """User and assistant speak in turn, the user first and last, but for a system prompt before them."""


class Filters(ApiModel):
    """Which prompts are taken. The others are no rows of the run; the plan counts them as filtered."""

    RULES = (
        Rule(
            "!has(self.minCharacters) || !has(self.maxCharacters) "
            "|| self.minCharacters <= self.maxCharacters",
            _CHARACTERS_CROSSED,
        ),
        Rule("!has(self.minTurns) || !has(self.maxTurns) || self.minTurns <= self.maxTurns", _TURNS_CROSSED),
    )

    min_characters: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Fewest characters of all turns of the prompt."
    )
    max_characters: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Most characters of all turns of the prompt."
    )
    min_turns: int | None = Field(default=None, ge=1, le=1_000_000, description="Fewest turns of the user.")
    max_turns: int | None = Field(default=None, ge=1, le=1_000_000, description="Most turns of the user.")
    roles: RoleShape = Field(
        default=RoleShape.ANY,
        description="Order of the turns: Any; StartsWithUser, but for a system prompt; or Alternating, which "
        "is user and assistant in turn, the user first and last, and no tools.",
    )

    @model_validator(mode="after")
    def _bounds_do_not_cross(self) -> Self:
        for least, most, sentence in (
            (self.min_characters, self.max_characters, _CHARACTERS_CROSSED),
            (self.min_turns, self.max_turns, _TURNS_CROSSED),
        ):
            if least is not None and most is not None and least > most:
                raise ValueError(sentence)
        return self
