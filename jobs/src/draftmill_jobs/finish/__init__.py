"""The second, independent look at what is on disk."""
