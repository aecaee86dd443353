"""Benchmarks of the training stage."""
