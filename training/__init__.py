"""Corpus and graph -> training rows; rows and a base model -> runs and models."""

import workspace as workspace
