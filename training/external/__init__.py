"""Trainers of others, told what to do by our specification: one program a file."""
