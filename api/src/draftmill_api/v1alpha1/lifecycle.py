"""The life of a run: the part of a spec that every kind shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from draftmill_api.base import ApiModel, Duration, says

Token = Annotated[
    str,
    Field(
        max_length=64,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$",
        json_schema_extra=says(
            "write any word of letters, digits and _ . : - that was not there before, like today's date"
        ),
    ),
]
"""A word whose change asks for something once."""


class RunSpec(ApiModel):
    """Stop, go and end, the same for every kind of run."""

    suspend: bool = Field(
        default=False,
        description="Stop the run and free everything it holds; false lets it go on from what is on disk.",
    )
    active_deadline: Duration | None = Field(
        default=None,
        description="The run is Failed when it has been active for so long. The clock starts when its first "
        "server (or, with endpoints, its first worker) is started; it stands still while the run is "
        "suspended or paused.",
    )
    pending_deadline: Duration | None = Field(
        default=None,
        description="The run is Failed when it has waited for so long before its first server (or worker) "
        "is started: input, plan, queue, placement and the pull of the image together. The clock stands "
        "still while the run is suspended.",
    )
    backoff_limit: int = Field(
        default=6,
        ge=0,
        le=1000,
        description="Failed attempts of a worker in a row, without progress, before the run is Failed. "
        "Progress is what is on disk: a new record, new states, a new checkpoint.",
    )
    ttl_after_finished: Duration | None = Field(
        default=None,
        description="The run object and its children are deleted so long after its end; files on the volume "
        "stay. It is kept for ever when left out.",
    )
    restart: Token | None = Field(
        default=None,
        description="Another word here starts the workers of an active run anew, from what is on disk, with "
        "its failures forgotten; rows that failed in a way that may pass are asked again.",
    )
