"""Corpus and graph -> training and test rows with mechanically verified answers.

python -m flows.build_datasets --workspace DIR
"""

from __future__ import annotations

import sys

from flows._cli import main, stage_door
from training.data import build
from training.data.build import DatasetConfig

DOOR = stage_door("build_datasets", DatasetConfig, build, __doc__)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.build_datasets import BUILD_DATASETS  # noqa: E402
from tasks.shards import StageStoppedError  # noqa: E402
from tasks.stage import run_stage  # noqa: E402
from tasks.stopping import stopped  # noqa: E402
from workspace.stage import StageResult  # noqa: E402


@flow(**flow_options("build_datasets", "build_datasets {config.name}"))
def build_datasets(config: DatasetConfig) -> StageResult | State[StageResult]:
    """Make a data set from a workspace's corpus and graph."""
    try:
        return run_stage(BUILD_DATASETS, config)
    except StageStoppedError as error:
        return stopped(str(error))
