"""Training of an EAGLE-3 drafter on a store of hidden states."""
