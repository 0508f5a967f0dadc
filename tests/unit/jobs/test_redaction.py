"""Secrets that others repeat are passed on by nobody."""

from __future__ import annotations

import logging

import pytest

from draftmill_jobs.engines.failures import FailureKind, RequestFailedError
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.shared.redaction import RedactingFormatter, redact

SAID = [
    ('{"Authorization": "Bearer abc.DEF-123"}', '{"Authorization": "Bearer ***"}'),
    ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic ***"),
    ("Bearer 0123456789 is not valid", "Bearer *** is not valid"),
    ("invalid token hf_AbCdEfGhIj", "invalid token ***"),
    ("invalid key sk-0123456789abcdefXYZ", "invalid key ***"),
    ("http://me:word@proxy:3128/x", "http://***@proxy:3128/x"),
    ("bearer authentication is off", "bearer authentication is off"),
    ("http://10.0.0.5:8000/generate refuses a@b", "http://10.0.0.5:8000/generate refuses a@b"),
]


@pytest.mark.parametrize(("said", "shown"), SAID)
def test_three_stars_stand_for_a_secret_and_for_nothing_else(said: str, shown: str) -> None:
    assert redact(said) == shown


def test_no_error_of_a_request_or_job_holds_one() -> None:
    failure = RequestFailedError(FailureKind.BAD_REQUEST, "bad hf_AbCdEfGhIj")
    refusal = JobRefusedError("ModelDownloadFailed", "no hf_AbCdEfGhIj")
    assert (failure.message, str(failure)) == ("bad ***", "bad ***")
    assert (refusal.message, str(refusal), refusal.refusal().message) == ("no ***", "no ***", "no ***")


def test_a_traceback_in_a_log_holds_none() -> None:
    record = logging.LogRecord("x", logging.ERROR, "", 0, "%s", ("hf_AbCdEfGhIj",), None)
    record.exc_text = "ValueError: Bearer 0123456789"
    assert RedactingFormatter("%(message)s").format(record) == "***\nValueError: Bearer ***"
