"""Corpus and graph -> verified training rows, leak-free splits and the views that trainers load."""
