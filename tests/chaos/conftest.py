"""The same node and the same bed as the end-to-end tests have, and only one session on it at a time."""

from __future__ import annotations

from tests.e2e.conftest import bed, pytest_collection_finish, shared_cluster

__all__ = ["bed", "pytest_collection_finish", "shared_cluster"]
