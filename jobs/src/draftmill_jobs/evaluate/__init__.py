"""A drafter at work: the same prompts on a server with it and on one without."""
