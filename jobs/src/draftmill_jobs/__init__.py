"""The steps of a run: plan, generate, finish. Each runs without Kubernetes too."""
