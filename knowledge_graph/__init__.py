"""Corpus -> entities, mentions, relations, communities, explorer."""

import workspace as workspace
