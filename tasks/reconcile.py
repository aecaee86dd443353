"""The tasks of reconciliation: runs on disk against flow runs and jobs that exist."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Crashed

from tasks._options import task_options
from tasks.stopping import is_cancelled, is_suspended
from training.cluster import flow_state, reconcile
from training.cluster.flow_state import FlowAction, FlowFinding, FlowRecord, FlowState, FlowView
from workspace.paths import Workspace

log = logging.getLogger(__name__)


@task(**task_options("reconcile", "flows", "reconcile flows"))
def reconcile_flows(workspace: Path) -> list[FlowFinding]:
    """Bring flow runs in line: start broken ones again, call lost ones crashed, note cancelled
    ones so that `reconcile_jobs` ends their jobs."""
    with get_client(sync_client=True) as client:
        findings = flow_state.compare_flows(
            Workspace(workspace), lambda flow: look_at(client, flow)
        )
        for finding in findings:
            log.info("%s", finding.describe())
            _act(client, finding)
    return findings


@task(**task_options("reconcile", "jobs", "reconcile"))
def reconcile_jobs(workspace: Path) -> list[reconcile.Finding]:
    """Cancel jobs that nobody wants; report what needs attention."""
    return reconcile.reconcile(Workspace(workspace))


def look_at(client: SyncPrefectClient, flow: FlowRecord) -> FlowView:
    """What the server knows of a flow run and of the one at the top, which is often the same."""
    own, root = _read(client, flow.flow_run), _read(client, flow.root)
    if own is None or root is None or own.state is None:
        return FlowView(FlowState.UNKNOWN)
    states = _state(own.state), _state(root.state)
    state = states[1]
    if FlowState.CANCELLED in states:
        state = FlowState.CANCELLED
    elif state is FlowState.ACTIVE and states[0] is not FlowState.ACTIVE:
        state = FlowState.WAITING
    age = datetime.now(UTC) - own.state.timestamp
    return FlowView(state, age.total_seconds(), root.run_count, root.deployment_id is not None)


def _read(client: SyncPrefectClient, flow_run: str) -> FlowRun | None:
    try:
        return client.read_flow_run(UUID(flow_run))
    except ObjectNotFound:
        return None


def _state(state: State[Any] | None) -> FlowState:
    if state is None:
        return FlowState.UNKNOWN
    if is_cancelled(state):
        return FlowState.CANCELLED
    if is_suspended(state):
        return FlowState.SUSPENDED
    if state.is_crashed() or state.is_failed():
        return FlowState.BROKEN
    if state.is_completed():
        return FlowState.COMPLETED
    return FlowState.ACTIVE if state.is_running() else FlowState.WAITING


def _act(client: SyncPrefectClient, finding: FlowFinding) -> None:
    flow_run = UUID(finding.flow.root)
    if finding.action is FlowAction.RETRY:
        # As `prefect flow-run retry`: the same flow run, which finds the job that it submitted.
        client.set_flow_run_state(flow_run, AwaitingRetry(), force=True)
    elif finding.action is FlowAction.MARK_CRASHED:
        message = "The process of this flow run is gone (found by reconcile)."
        client.set_flow_run_state(flow_run, Crashed(message=message), force=True)
    elif finding.action is FlowAction.CANCEL_JOBS:
        _finish_cancelling(client, finding.flow)


def _finish_cancelling(client: SyncPrefectClient, flow: FlowRecord) -> None:
    """Call cancelled what was to be: only the worker that started a flow run would ever do so
    (Prefect 3.9), and that one is gone."""
    message = "Its jobs are ended by reconcile; the worker that started it is gone."
    for name in {flow.flow_run, flow.root}:
        run = _read(client, name)
        if run is not None and run.state is not None and run.state.is_cancelling():
            client.set_flow_run_state(run.id, Cancelled(message=message), force=True)
