"""Render: spec, plan, frozen defaults and decision -> child manifests. Pure and deterministic."""
