"""The worker: asks every row and keeps the exact token ids."""
