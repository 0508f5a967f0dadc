"""One module for each command; `run(args)` returns the exit code."""
