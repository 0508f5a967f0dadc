"""What a developer's machine needs: the local Kubernetes, images, the demo. Standard library only."""
