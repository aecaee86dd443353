"""Tasks of the graph: corpus tables -> entities, relations, communities, explorer."""

from __future__ import annotations

from knowledge_graph import build
from tasks.stage import stage_tasks

BUILD_GRAPH = stage_tasks("build_graph", build, unit="elements")
