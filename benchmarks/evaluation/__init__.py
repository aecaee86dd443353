"""Benchmarks of the evaluation stage."""
