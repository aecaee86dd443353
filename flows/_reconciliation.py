"""What reconciling a workspace's runs with their jobs is asked and answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flows._summary import Summary
from training.cluster.flow_state import FlowFinding
from training.cluster.reconcile import Finding
from workspace.config import StageConfig, setting


class ReconcileConfig(StageConfig):
    """Which workspace's runs to compare with the jobs that exist."""

    workspace: Path = setting(position=0, description="Folder of all stages", affects_output=False)


class Found(NamedTuple):
    """Open attempts, and flow runs that do not fit."""

    jobs: list[Finding]
    flows: list[FlowFinding]


def summarise(found: Found) -> Summary:
    """A line for each open attempt and each flow run that does not fit."""
    waiting = sum(finding.needs_attention for finding in found.jobs)
    return Summary(
        headline=f"reconcile: {len(found.jobs)} open attempt(s), {waiting} need(s) attention",
        notes=(
            *(finding.describe() for finding in found.flows),
            *(finding.describe() for finding in found.jobs),
        ),
    )


def flow_rows(findings: Sequence[FlowFinding]) -> list[dict[str, object]]:
    """The findings as rows of a table."""
    return [
        {
            "run": finding.run,
            "flow_run": finding.flow.root,
            "state": str(finding.state),
            "supervised": finding.supervised,
            "action": str(finding.action),
        }
        for finding in findings
    ]


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
