"""The task of reconciliation: runs on disk against jobs that exist."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from tasks._options import task_options
from training.cluster import reconcile
from workspace.paths import Workspace


@task(**task_options("reconcile", "jobs", "reconcile"))
def reconcile_jobs(workspace: Path) -> list[reconcile.Finding]:
    """Cancel jobs that nobody wants; report what needs attention."""
    return reconcile.reconcile(Workspace(workspace))
