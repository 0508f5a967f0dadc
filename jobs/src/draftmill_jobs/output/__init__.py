"""The folder that a SynthRun's answers belong to."""
