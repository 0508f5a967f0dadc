"""Resources of draftmill.dev/v1alpha1."""

from draftmill_api.v1alpha1.synthrun import SynthRun, SynthRunSpec, SynthRunStatus

__all__ = ["SynthRun", "SynthRunSpec", "SynthRunStatus"]
