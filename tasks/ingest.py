"""Tasks of ingest: files -> corpus tables, and a contact sheet of what was found."""

from __future__ import annotations

from corpus import ingest
from tasks.stage import stage_tasks

INGEST = stage_tasks("ingest", ingest, unit="documents")
