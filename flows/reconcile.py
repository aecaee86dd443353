"""Compare training runs with their flow runs and jobs: mend what is clear, report the rest.

python -m flows.reconcile --workspace DIR
"""

from __future__ import annotations

import sys

from flows._cli import Door, main
from flows._reconciliation import ReconcileConfig, finding_rows, flow_rows, summarise

DOOR = Door(
    "reconcile",
    ReconcileConfig,
    __doc__,
    settled=lambda config: None,
    preview=lambda config: f"compares the runs of {config.workspace} with their jobs",
    summarise=summarise,
)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402

from flows._options import flow_options  # noqa: E402
from flows._reconciliation import Found  # noqa: E402
from tasks.artifacts import show_table  # noqa: E402
from tasks.reconcile import reconcile_flows, reconcile_jobs  # noqa: E402


@flow(**flow_options("reconcile", "reconcile {config.workspace.name}"))
def reconcile(config: ReconcileConfig) -> Found:
    """Bring the runs of a workspace, their flow runs and the jobs of the cluster together."""
    flows = reconcile_flows(config.workspace)
    jobs = reconcile_jobs(config.workspace)
    show_table("reconcile", "findings", finding_rows(jobs), "reconcile: open attempts")
    show_table("reconcile", "flows", flow_rows(flows), "reconcile: flow runs that do not fit")
    return Found(jobs, flows)
