"""The steps of a run: plan, generate, finish. They run in pods and without Kubernetes alike."""
