"""Files -> corpus: pages, elements, tables, images, chunks, summaries, RTL modules.

python -m flows.ingest SOURCE… --workspace DIR
"""

from __future__ import annotations

import sys

from corpus import ingest as stage
from corpus.ingest_config import IngestConfig
from flows._cli import main, stage_door
from flows._forecast import CLUSTERS, preview_ingest
from tasks.cluster import load_cluster

DOOR = stage_door("ingest", IngestConfig, stage, __doc__, preview=preview_ingest)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.ingest import INGEST, show_documents  # noqa: E402
from tasks.shards import StageStoppedError  # noqa: E402
from tasks.stage import run_stage  # noqa: E402
from tasks.stopping import stopped  # noqa: E402
from workspace.stage import StageResult  # noqa: E402


@flow(**flow_options("ingest", "ingest {config.workspace.name}"))
def ingest(config: IngestConfig) -> StageResult | State[StageResult]:
    """Read documents into a workspace's corpus; unreadable ones go to quarantine."""
    try:
        result = run_stage(INGEST, config, load_cluster(config.cluster, CLUSTERS))
    except StageStoppedError as error:
        return stopped(str(error))
    show_documents(result)
    return result
