"""The same node and the same bed as the end-to-end tests have."""

from tests.e2e.conftest import shared_cluster
from tests.e2e.synthrun.conftest import bed, pytest_collection_finish

__all__ = ["bed", "pytest_collection_finish", "shared_cluster"]
