"""The checks as Slurm's HealthCheckProgram, Prolog and Epilog.

HealthCheckProgram drains its own node when a check asks for it, and lets it go when all is well
again; a node that somebody else drained stays as it is. Prolog and Epilog ask Slurm nothing (many
run at once, and slurmctld would have to answer them all): their exit code alone drains the node.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training.cluster.health.checks import Situation
from training.cluster.health.config import HealthConfig
from training.cluster.health.processes import Scope, ended_on_disk
from training.cluster.health.results import (
    REASON_PREFIX,
    CheckResult,
    Severity,
    drain_reason,
    worst,
)
from training.cluster.slurm_client import SlurmClient
from workspace.errors import TransientError, UserError

log = logging.getLogger(__name__)


def quick_client() -> SlurmClient:
    """One that gives up soon: the check comes again, and slurmd ends it after a minute."""
    return SlurmClient(timeout_s=10.0, delays_s=(1.0,))


def situation_by_slurm(node: str, client: SlurmClient) -> Situation:
    """Ask Slurm for the node's GPUs and jobs; without an answer the disk alone says what ended."""
    try:
        asked_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        gpus, running = client.gpus(node), client.jobs_on(node)
        scope = Scope(node, client.cluster_name(), asked_at)
    except (TransientError, UserError) as error:
        log.warning("Slurm was not asked about %s: %s", node, error)
        return Situation(own_scope(node), ended_on_disk)

    def ended(job_id: str, attempt_dir: Path) -> bool:
        return job_id not in running

    return Situation(scope, ended if gpus is not None else ended_on_disk, gpus)


def own_scope(node: str) -> Scope:
    """What a prolog or epilog knows of itself from its environment."""
    return Scope(node, os.environ.get("SLURM_CLUSTER_NAME", ""))


def situation_of_epilog(node: str) -> Situation:
    """In the epilog of a job whatever it left is left over."""
    own = os.environ.get("SLURM_JOB_ID", "")

    def ended(job_id: str, attempt_dir: Path) -> bool:
        return job_id == own or ended_on_disk(job_id, attempt_dir)

    return Situation(own_scope(node), ended)


class WantedState(NamedTuple):
    """What Slurm should know of a node."""

    state: str
    reason: str


def wanted_state(results: Sequence[CheckResult], config: HealthConfig) -> WantedState | None:
    """How the node should be taken out; None when it is fit for jobs."""
    severity = worst(result.severity for result in results)
    if severity < Severity.DRAIN:
        return None
    if severity is Severity.ISOLATE:
        return WantedState(config.isolate_state, config.isolate_reason or drain_reason(results))
    return WantedState("DRAIN", drain_reason(results))


def act(
    node: str, results: Sequence[CheckResult], client: SlurmClient, config: HealthConfig
) -> str:
    """Drain or release the node as the results say; returns what was done, "" for nothing."""
    try:
        return _act(node, results, client, config)
    except (TransientError, UserError) as error:
        return f"could not change {node}: {error}"


def _act(
    node: str, results: Sequence[CheckResult], client: SlurmClient, config: HealthConfig
) -> str:
    known = next((info for info in client.nodes([node]) if info.name == node), None)
    if known is None:
        return f"Slurm knows no node {node}"
    ours = known.reason.startswith(REASON_PREFIX)
    wanted = wanted_state(results, config)
    if wanted is not None:
        if known.usable or (ours and known.reason != wanted.reason):
            client.take_out(node, wanted.reason, state=wanted.state)
            return f"{wanted.state.lower()}: {node}"
        return ""
    if ours and not known.usable:
        client.resume(node)
        return f"released {node}"
    return ""
