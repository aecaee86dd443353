"""Data set and base model -> a trained, registered model: fine-tuning, then verified rewards.

python -m flows.train --workspace DIR
"""

from __future__ import annotations

import sys
from typing import Any

from flows._cli import Door, main
from flows._summary import summarise_stage
from training import train as stage
from training.train import TrainConfig
from workspace.stage import StageResult


def settled(config: TrainConfig) -> StageResult | None:
    """The result of the same run done before."""
    planned = stage.plan(config)
    if planned.published is None:
        return None
    return StageResult(planned.published, planned.folder.final, skipped=True)


def preview(config: TrainConfig) -> str:
    """What a run would do."""
    planned = stage.plan(config)
    if planned.published is not None:
        return f"nothing to do: already published in {planned.folder.final}"
    stages = " then ".join(planned.record.stages)
    return f"{stages} from {planned.base}, into {planned.folder.root}"


DOOR = Door("train", TrainConfig, __doc__, settled, preview, summarise_stage("train"))

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.states import Cancelled  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.artifacts import report_stage  # noqa: E402
from tasks.train import supervise  # noqa: E402
from training.supervise import TrainingStoppedError  # noqa: E402


@flow(**flow_options("train", "train {config.name}"))
def train(config: TrainConfig) -> Any:
    """Train a model on a data set; a stopped run goes on from its checkpoint."""
    try:
        result = supervise(config)
    except TrainingStoppedError as error:
        # A plain return would leave a cancelled run `Cancelling` for ever.
        return Cancelled(message=str(error))
    report_stage("train", result)
    return result
