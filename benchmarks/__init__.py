"""Measurements of what the project claims: `python -m benchmarks.<area>.<name> [--short]`."""
