"""Files that run in a model server's Python, not in ours: nothing here is imported by the jobs."""
