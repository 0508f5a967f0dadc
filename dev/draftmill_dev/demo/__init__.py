"""`make demo`: from a bare machine to a finished dataset, step by step."""
