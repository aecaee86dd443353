"""Files -> corpus: pages, elements, tables, images, chunks, summaries, RTL modules.

python -m flows.ingest SOURCE… --workspace DIR
"""

from __future__ import annotations

import sys

from corpus import ingest as stage
from corpus.ingest import IngestConfig
from flows._cli import main, stage_door

DOOR = stage_door("ingest", IngestConfig, stage, __doc__)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.ingest import INGEST, show_documents  # noqa: E402
from tasks.stage import run_stage  # noqa: E402
from workspace.stage import StageResult  # noqa: E402


@flow(**flow_options("ingest", "ingest {config.workspace.name}"))
def ingest(config: IngestConfig) -> StageResult:
    """Read documents into a workspace's corpus; unreadable ones go to quarantine."""
    result = run_stage(INGEST, config)
    show_documents(result)
    return result
