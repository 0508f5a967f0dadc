"""Observe: the cache of the API's objects, and from it what one run's children are doing. Pure."""
