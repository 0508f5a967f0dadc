"""Log lines: JSON for collectors, text for people."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson

from draftmill_operator.settings import LogFormat, LogLevel


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with its time, level, logger and message, and the traceback of an error."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def configure(level: LogLevel, form: LogFormat) -> None:
    """Send everything to stderr in the chosen form."""
    handler = logging.StreamHandler()
    if form is LogFormat.JSON:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)
