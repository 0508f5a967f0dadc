"""ExtractRun: records in, the target's hidden states out."""
