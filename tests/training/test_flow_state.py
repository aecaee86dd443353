"""What becomes of a flow run, by its state and by whether somebody supervises its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.cluster.flow_state import (
    GRACE_S,
    MOST_RETRIES,
    FlowAction,
    FlowRecord,
    FlowState,
    FlowView,
    compare_flows,
    decide,
    note_flow,
)
from training.run_record import RunFolder, RunRecord
from workspace.locking import stage_lock
from workspace.manifest import now
from workspace.paths import Workspace

S, A = FlowState, FlowAction
OLD, YOUNG = GRACE_S + 1, 5.0


@pytest.mark.parametrize(
    ("view", "supervised", "action"),
    [
        (FlowView(S.UNKNOWN), False, A.LEAVE),
        (FlowView(S.WAITING, OLD), False, A.LEAVE),
        (FlowView(S.CANCELLED), False, A.CANCEL_JOBS),
        (FlowView(S.SUSPENDED, OLD), False, A.CANCEL_JOBS),
        (FlowView(S.SUSPENDED), True, A.LEAVE),
        (FlowView(S.CANCELLED), True, A.LEAVE),  # its supervisor hears of it by itself
        (FlowView(S.BROKEN, deployed=True), False, A.RETRY),
        (FlowView(S.BROKEN, runs=MOST_RETRIES + 1, deployed=True), False, A.REPORT),
        (FlowView(S.BROKEN, deployed=False), False, A.REPORT),  # `python -m flows.train`
        (FlowView(S.BROKEN, deployed=True), True, A.LEAVE),  # a false alarm of the server
        (FlowView(S.ACTIVE, YOUNG), False, A.LEAVE),  # it reads the base model before it locks
        (FlowView(S.ACTIVE, OLD), False, A.MARK_CRASHED),
        (FlowView(S.ACTIVE, OLD), True, A.LEAVE),
        (FlowView(S.COMPLETED), False, A.REPORT),
    ],
)
def test_what_follows(view: FlowView, supervised: bool, action: FlowAction) -> None:
    assert decide(view, supervised=supervised) is action


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One run, `r1`, with an open attempt and a flow run."""
    workspace = Workspace(tmp_path)
    run = RunFolder(workspace.run("r1"))
    run.write_record(
        RunRecord(
            run="r1", key="k", settings={}, lineage={}, base_model="b", stages=("sft",),
            created=now(),
        )
    )  # fmt: skip
    run.stage("sft").attempt(1).mkdir(parents=True)
    note_flow(run, FlowRecord("own", "root"))
    return workspace


def test_a_cancelled_flow_asks_for_the_end_of_its_jobs(workspace: Workspace) -> None:
    asked: list[FlowRecord] = []

    def look(flow: FlowRecord) -> FlowView:
        asked.append(flow)
        return FlowView(S.CANCELLED)

    [finding] = compare_flows(workspace, look)
    assert asked == [FlowRecord("own", "root")]
    assert finding.describe() == (
        "r1: its flow run is cancelled, nobody supervises it: cancel jobs"
    )
    attempt = RunFolder(workspace.run("r1")).stage("sft").attempt(1)
    assert (attempt / "cancel-requested").exists()
    (attempt / "outcome.json").write_text("{}")
    assert compare_flows(workspace, look) == [], "no attempt is open: it was obeyed"


def test_a_supervised_run_is_left_alone_and_a_contradiction_is_told(workspace: Workspace) -> None:
    with stage_lock(workspace, "run-r1"):
        assert compare_flows(workspace, lambda flow: FlowView(S.ACTIVE, OLD)) == []
        [finding] = compare_flows(workspace, lambda flow: FlowView(S.BROKEN, deployed=True))
    assert finding.supervised and finding.action is A.LEAVE


def test_a_run_that_no_flow_started_has_nothing_to_compare(workspace: Workspace) -> None:
    (workspace.run("r1") / "flow-run.json").unlink()
    assert compare_flows(workspace, lambda flow: pytest.fail("nothing to ask")) == []
