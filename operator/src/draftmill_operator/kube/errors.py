"""What the API server refuses."""

from __future__ import annotations

import orjson


class ApiError(Exception):
    """An answer other than success."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        causes: tuple[str, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after
        """Seconds after which the server asks to come back."""

    @classmethod
    def from_answer(cls, code: int, text: bytes, retry_after: float | None) -> ApiError:
        """The error that a `Status` object describes; anything else in the answer is shown as it is."""
        try:
            body = orjson.loads(text)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict) or body.get("kind") != "Status":
            words = text.decode(errors="replace")[:512]
            return cls(code, "Unknown", words, retry_after=retry_after)
        details = body.get("details") or {}
        causes = tuple(cause.get("reason", "") for cause in details.get("causes") or [])
        return cls(code, body.get("reason", "Unknown"), body.get("message", ""), causes, retry_after)

    @property
    def is_not_found(self) -> bool:
        """There is no such object."""
        return self.code == 404

    @property
    def is_forbidden(self) -> bool:
        """The operator has no right to that."""
        return self.code == 403

    @property
    def is_conflict(self) -> bool:
        """The object exists already, or was changed in between."""
        return self.code == 409

    @property
    def is_namespace_ending(self) -> bool:
        """Nothing can be made in a namespace that is being deleted, and nothing needs to be."""
        return "NamespaceTerminating" in self.causes
