"""Failed assertions of the helpers tell their values, as those of the tests do."""

import pytest

pytest.register_assert_rewrite("tests.support")
