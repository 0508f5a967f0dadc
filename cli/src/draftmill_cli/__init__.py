"""The `draftmill` command, also `kubectl draftmill`."""
