"""What the tests of the jobs share."""

from tests.support.job_fixtures import job, model, models, server

__all__ = ["job", "model", "models", "server"]
