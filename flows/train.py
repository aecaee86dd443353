"""Data set and base model -> a trained, registered model, stage by stage.

python -m flows.train --workspace DIR
python -m flows.train --workspace DIR --recipe llama31_8b_sft_lora_1x8 --base-model /models/llama
"""

from __future__ import annotations

import sys

from flows._cli import Door, main
from flows._published import preview_run, published_run
from flows._summary import summarise_stage
from training.train import RECIPES, TrainConfig

DOOR = Door(
    "train",
    TrainConfig,
    __doc__,
    published_run,
    preview_run,
    summarise_stage("train"),
    recipes=RECIPES,
)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import FlowRun, State  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.artifacts import report_stage  # noqa: E402
from tasks.stopping import stopped  # noqa: E402
from tasks.train import cancel_jobs, supervise  # noqa: E402
from workspace.stage import StageResult  # noqa: E402


def cancel_jobs_of(flow: object, flow_run: FlowRun, state: object) -> None:
    """Hook on cancellation, called by the worker: end the job if the flow's process could not."""
    cancel_jobs(flow_run)


@flow(**flow_options("train", "train {config.name}"), on_cancellation=[cancel_jobs_of])
def train(config: TrainConfig) -> StageResult | State[StageResult]:
    """Train a model on a data set; a stopped run goes on from its checkpoint."""
    result = supervise(config)
    if isinstance(result, State):
        return stopped(str(result.message))
    report_stage("train", result)
    return result
