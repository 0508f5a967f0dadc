"""Keeping secrets out of what is written and shown: logs, dead letters, status.

Draftmill never puts a secret into its own words, but passes on those of servers, proxies and libraries, and
some of these repeat the headers or addresses of a request.
"""

from __future__ import annotations

import logging
import re
from typing import Final

_SECRET: Final = re.compile(
    r"(?<=authorization)(?P<given>[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',}]+"
    r"|(?P<scheme>\bbearer\s+)(?=[^\s\"',}]*[0-9])[^\s\"',}]{8,}"
    r"|\bhf_[A-Za-z0-9]{8,}"  # of the Hugging Face hub
    r"|\bsk-[A-Za-z0-9_-]{16,}"  # of OpenAI and what is like it
    r"|(?<=://)[^/@\s]+(?=@)",  # user and password of an address
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text with three stars for each secret in it."""
    return _SECRET.sub(lambda found: f"{found['given'] or found['scheme'] or ''}***", text)


class RedactingFormatter(logging.Formatter):
    """Formats a log's line, traceback included, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return redact(super().format(record))
