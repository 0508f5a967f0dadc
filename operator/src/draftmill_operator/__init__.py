"""The Draftmill operator: observe, decide, render, apply, status."""
