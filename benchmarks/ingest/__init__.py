"""Benchmarks of ingestion: tables, broken files, speed, memory, re-runs, scale and OCR."""
