"""The flow run that a training run belongs to: noted on disk, and compared with what goes on.

    runs/<run>/flow-run.json     the flow run that supervised it last, and the one that started that

In: those files, whether a supervisor holds the run's lock, and what the flow's server says, which
the caller asks (libraries know no Prefect). Out: a finding for each flow run that does not fit.
One thing is done here: a run whose flow was cancelled or suspended while nobody supervises it has
its jobs ended by the next `reconcile`. What should become of the flow run itself is for the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from training.cluster.reconcile import request_cancel, unpublished_runs
from training.run_record import RunFolder
from workspace import publish
from workspace.errors import WorkspaceBusyError
from workspace.locking import stage_lock
from workspace.paths import Workspace

FLOW_NAME = "flow-run.json"
# A flow run is busy for a while before its supervisor takes the lock: it hashes the base model.
GRACE_S = 900.0
MOST_RETRIES = 5


class FlowState(StrEnum):
    """What the flow's server says, as far as it matters here."""

    UNKNOWN = "unknown"  # no such run there (any more), or the server does not answer
    WAITING = "waiting"  # scheduled, pending, or its parent is at something else
    SUSPENDED = "suspended"  # until somebody resumes it
    ACTIVE = "active"  # its process should be at work
    CANCELLED = "cancelled"  # or about to be
    BROKEN = "broken"  # crashed or failed
    COMPLETED = "completed"


class FlowAction(StrEnum):
    """What should become of the flow run."""

    LEAVE = "leave"
    CANCEL_JOBS = "cancel_jobs"  # the run's jobs: nobody is left to hear that they should end
    RETRY = "retry"  # a worker starts it again; it finds its job and goes on watching
    MARK_CRASHED = "mark_crashed"  # it says that it runs, but its process is gone
    REPORT = "report"  # a person should start the run again


@dataclass(frozen=True)
class FlowRecord:
    """`flow-run.json`: the flow run that supervises, and the one at the top of it."""

    flow_run: str
    root: str


class FlowView(NamedTuple):
    """A flow run as its server knows it. `deployed`: a worker would run it when it is retried."""

    state: FlowState
    age_s: float = 0.0  # of that state
    runs: int = 1  # how often it was started
    deployed: bool = False


Look = Callable[[FlowRecord], FlowView]


@dataclass(frozen=True)
class FlowFinding:
    """A run whose flow run does not fit what goes on."""

    run: str
    flow: FlowRecord
    state: FlowState
    supervised: bool
    action: FlowAction

    def describe(self) -> str:
        """For example `dsm-1: its flow run is broken, nobody supervises it: retry`."""
        who = "a supervisor works on" if self.supervised else "nobody supervises it"
        return f"{self.run}: its flow run is {self.state}, {who}: {self.action.replace('_', ' ')}"


def note_flow(run: RunFolder, flow: FlowRecord) -> None:
    """Say that `flow` supervises `run` from now on."""
    publish.write_json(run.root / FLOW_NAME, asdict(flow))


def read_flow(run: RunFolder) -> FlowRecord | None:
    """The flow run that supervised `run` last, if one ever did."""
    try:
        return FlowRecord(**json.loads((run.root / FLOW_NAME).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def supervised_by(workspace: Workspace, flow_run: str) -> list[RunFolder]:
    """Unfinished runs that `flow_run`, or one that it started, supervised last."""
    return [
        run
        for run in unpublished_runs(workspace)
        if (flow := read_flow(run)) is not None and flow_run in (flow.flow_run, flow.root)
    ]


def decide(view: FlowView, *, supervised: bool) -> FlowAction:
    """What follows for the flow run of a run that is not finished."""
    if supervised or view.state in (FlowState.UNKNOWN, FlowState.WAITING):
        # A supervisor hears by itself that it should stop, and servers have called living runs
        # crashed when their heartbeats were late.
        return FlowAction.LEAVE
    if view.state in (FlowState.CANCELLED, FlowState.SUSPENDED):
        return FlowAction.CANCEL_JOBS
    if view.state is FlowState.BROKEN:
        again = view.deployed and view.runs <= MOST_RETRIES
        return FlowAction.RETRY if again else FlowAction.REPORT
    if view.state is FlowState.ACTIVE:
        return FlowAction.MARK_CRASHED if view.age_s >= GRACE_S else FlowAction.LEAVE
    return FlowAction.REPORT


def compare_flows(workspace: Workspace, look: Look) -> list[FlowFinding]:
    """Findings of all unfinished runs. Call before `reconcile`, which does the cancelling."""
    return list(_findings(workspace, look))


def _findings(workspace: Workspace, look: Look) -> Iterator[FlowFinding]:
    for run in unpublished_runs(workspace):
        flow = read_flow(run)
        if flow is None:
            continue
        view, supervised = look(flow), _is_supervised(workspace, run)
        action = decide(view, supervised=supervised)
        if action is FlowAction.CANCEL_JOBS and not request_cancel(workspace, run.name):
            continue  # no attempt is open: it was obeyed
        contradicts = supervised and view.state in (FlowState.BROKEN, FlowState.COMPLETED)
        if action is not FlowAction.LEAVE or contradicts:
            yield FlowFinding(run.name, flow, view.state, supervised, action)


def _is_supervised(workspace: Workspace, run: RunFolder) -> bool:
    try:
        with stage_lock(workspace, f"run-{run.name}"):
            return False
    except WorkspaceBusyError:
        return True
