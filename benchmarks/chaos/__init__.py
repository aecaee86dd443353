"""Faults injected into training on a real Slurm, and how the pipeline gets over them."""
