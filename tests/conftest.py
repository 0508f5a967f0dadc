"""Failed assertions of the helpers tell values, as those of the tests do; a slow machine fails no test."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support")
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
