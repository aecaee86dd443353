"""The three data stages on a small corpus of examples/documents, here or in a process to kill.

python small_stages.py ingest WORKSPACE      prints the name of each phase as it begins
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from knowledge_graph import extraction
from workspace.manifest import Manifest
from workspace.paths import Workspace

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples" / "documents"
SOURCES: Final = (
    "rtl", "bring-up-notes.md", "errata.txt", "product-brief.pdf", "thermal-sweep.csv",
)  # fmt: skip
STAGES: Final = ("ingest", "build_graph", "build_datasets")
PHASES: Final = ("process", "publish")


def folder_of(stage: str, workspace: Path) -> Path:
    """Where a stage publishes."""
    where = Workspace(workspace)
    return {
        "ingest": where.corpus,
        "build_graph": where.graph,
        "build_datasets": where.dataset("dsm"),
    }[stage]


def run_stage(
    stage: str, workspace: Path, begins: Callable[[str], None] = lambda phase: None
) -> Manifest:
    """To the end; `begins` is told of each of `PHASES`."""
    module, config = _stage_of(stage, workspace)
    begins("process")
    planned = module.plan(config)
    if planned.published is None:
        for shard in planned.shards:
            module.process(config, shard)
        begins("publish")
        module.publish(config, planned)
    published: Manifest = module.plan(config).published
    return published


def _stage_of(stage: str, workspace: Path) -> tuple[Any, Any]:
    if stage == "ingest":
        from corpus import ingest
        from corpus.ingest_config import IngestConfig

        sources = [str(EXAMPLES / name) for name in SOURCES]
        settings: dict[str, Any] = {"workers": 1, "table_detection": "fast"}
        return ingest, IngestConfig(sources=sources, workspace=workspace, **settings)
    if stage == "build_graph":
        from knowledge_graph import build as graph

        return graph, graph.GraphConfig(workspace=workspace, min_mentions=1, workers=2)
    from training.data import build as data

    return data, data.DatasetConfig(workspace=workspace, workers=2)


if __name__ == "__main__":
    # Prose is parsed in child processes from two batches on.
    extraction.BATCH_CHARS = 4_000
    run_stage(sys.argv[1], Path(sys.argv[2]), lambda phase: print(phase, flush=True))
