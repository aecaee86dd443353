"""Documents -> an evaluated model: all five stages in order, skipping what is published.

python -m flows.pipeline SOURCE… --workspace DIR
"""

from __future__ import annotations

import sys

from flows._cli import Door, main
from flows._pipeline import PipelineConfig, PipelineResult, check, preview, settled, summarise
from flows._summary import markdown

DOOR = Door("pipeline", PipelineConfig, __doc__, settled, preview, summarise)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import FlowRun, State  # noqa: E402
from prefect.exceptions import CancelledRun, Pause  # noqa: E402
from prefect.states import Cancelled  # noqa: E402

from flows._options import flow_options  # noqa: E402
from flows.build_datasets import build_datasets  # noqa: E402
from flows.build_graph import build_graph  # noqa: E402
from flows.ingest import ingest  # noqa: E402
from flows.score import score  # noqa: E402
from flows.train import train  # noqa: E402
from tasks.artifacts import show_report  # noqa: E402
from tasks.stopping import finished, rest_parts  # noqa: E402
from tasks.train import cancel_jobs  # noqa: E402


def cancel_jobs_of(flow: object, flow_run: FlowRun, state: object) -> None:
    """Hook on cancellation, called by the worker: end the job if the flow's process could not."""
    cancel_jobs(flow_run)


@flow(
    **flow_options("pipeline", "pipeline {config.workspace.name}"),
    on_cancellation=[cancel_jobs_of],
)
def pipeline(config: PipelineConfig) -> PipelineResult | State[PipelineResult]:
    """Turn documents into an evaluated model; each stage is a flow run of its own."""
    check(config)
    try:
        result = PipelineResult(
            finished(ingest(config.for_ingest())),
            finished(build_graph(config.for_graph())),
            finished(build_datasets(config.for_datasets())),
            finished(train(config.for_train())),
            finished(score(config.for_score())),
        )
    except CancelledRun as error:
        return Cancelled(message=str(error))
    except Pause:
        rest_parts()
        raise
    show_report("pipeline", markdown(summarise(result)), "pipeline: stages, scores, where to look")
    return result
