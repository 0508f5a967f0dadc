"""The `draftmill` command, also `kubectl draftmill`: looks at runs, and runs jobs without Kubernetes."""
