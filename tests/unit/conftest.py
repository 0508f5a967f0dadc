"""Unit tests know no torch: importing it costs more than most of them together."""

import tests.support.without_torch  # noqa: F401
