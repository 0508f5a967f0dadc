"""Which stage is wrong when a drafter is not accepted: store, states, vocabulary, export or training."""
