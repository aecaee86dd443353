"""What reconciling a workspace's runs with their jobs is asked and answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flows._summary import Summary
from training.cluster.reconcile import Finding
from workspace.config import StageConfig, setting


class ReconcileConfig(StageConfig):
    """Which workspace's runs to compare with the jobs that exist."""

    workspace: Path = setting(position=0, description="Folder of all stages", affects_output=False)


def summarise(findings: Sequence[Finding]) -> Summary:
    """A line for each open attempt."""
    waiting = sum(finding.needs_attention for finding in findings)
    return Summary(
        headline=f"reconcile: {len(findings)} open attempt(s), {waiting} need(s) attention",
        notes=tuple(finding.describe() for finding in findings),
    )


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """The findings as rows of a table."""
    return [
        {
            "run": finding.run,
            "stage": finding.stage,
            "attempt": finding.attempt,
            "situation": str(finding.situation),
            "state": str(finding.state or ""),
            "job": f"{finding.launcher} {finding.job_id}".strip(),
            "detail": finding.detail,
            "attention": finding.needs_attention,
        }
        for finding in findings
    ]
