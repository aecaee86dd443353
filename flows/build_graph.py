"""Corpus tables -> knowledge graph: entities, mentions, relations, communities, explorer.

python -m flows.build_graph --workspace DIR
"""

from __future__ import annotations

import sys

from flows._cli import main, stage_door
from knowledge_graph import build
from knowledge_graph.build import GraphConfig

DOOR = stage_door("build_graph", GraphConfig, build, __doc__)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.build_graph import BUILD_GRAPH  # noqa: E402
from tasks.shards import StageStoppedError  # noqa: E402
from tasks.stage import run_stage  # noqa: E402
from tasks.stopping import stopped  # noqa: E402
from workspace.stage import StageResult  # noqa: E402


@flow(**flow_options("build_graph", "build_graph {config.workspace.name}"))
def build_graph(config: GraphConfig) -> StageResult | State[StageResult]:
    """Build the knowledge graph of a workspace's corpus."""
    try:
        return run_stage(BUILD_GRAPH, config)
    except StageStoppedError as error:
        return stopped(str(error))
