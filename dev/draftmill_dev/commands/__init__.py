"""The commands of `python3 -m draftmill_dev`, one module each."""
