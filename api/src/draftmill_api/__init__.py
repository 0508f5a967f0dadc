"""The contract that the operator and the jobs share: types only, no I/O."""
