"""The reconcile flow against a real Prefect server: flow runs, run records and jobs together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from training.cluster.flow_state import FlowAction, FlowRecord, FlowState, note_flow
from training.cluster.job import Job
from training.cluster.local import LocalLauncher
from training.cluster.reconcile import Situation
from training.run_record import RunFolder, RunRecord
from workspace.manifest import now
from workspace.paths import Workspace

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose job waits to be told to stop, and that nobody supervises."""
    run = RunFolder(Workspace(tmp_path).run("r1"))
    run.write_record(
        RunRecord(
            run="r1", key="k", settings={}, lineage={}, base_model="b", stages=("sft",),
            created=now(),
        )
    )  # fmt: skip
    folder = run.stage("sft").attempt(1).resolve()
    folder.mkdir(parents=True)
    source = (
        "import sys, time; from pathlib import Path\n"
        f"stop = Path({str(folder)!r}, 'stop-requested')\n"
        "deadline = time.monotonic() + 300\n"
        "while not stop.exists() and time.monotonic() < deadline: time.sleep(0.05)\n"
        "sys.exit(75)"
    )
    LocalLauncher().submit(Job("dsm-r1-sft-1", ("-c", source), folder))
    return run


def start_flow_run(run: RunFolder, **config: str) -> UUID:
    """A deployed flow run of `train` that says that it runs, and that the run's folder names."""
    from prefect.client.orchestration import get_client
    from prefect.states import Running

    async def create() -> UUID:
        async with get_client() as client:
            flow = await client.create_flow_from_name("train")
            deployment = await client.create_deployment(flow_id=flow, name="nightly")
            created = await client.create_flow_run_from_deployment(
                deployment, parameters={"config": config}
            )
            await client.set_flow_run_state(created.id, Running(), force=True)
            return created.id

    flow_run = asyncio.run(create())
    note_flow(run, FlowRecord(str(flow_run), str(flow_run)))
    return flow_run


def reconcile(run: RunFolder) -> tuple[list[Any], list[Any]]:
    from flows.reconcile import reconcile as flow

    found = flow({"workspace": str(run.root.parent.parent)})
    return found.flows, found.jobs


def set_state(flow_run: UUID, state: Any) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, state, force=True)


def state_name(flow_run: UUID) -> str:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return str(client.read_flow_run(flow_run).state_name)


def test_from_a_lost_flow_run_to_a_cancelled_job(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.states import Cancelled

    flow_run = start_flow_run(run)
    # It may still be reading the base model: nothing is concluded yet.
    flows, jobs = reconcile(run)
    assert flows == [] and [job.situation for job in jobs] == [Situation.UNATTENDED]

    monkeypatch.setattr("training.cluster.flow_state.GRACE_S", 0.0)
    [lost], [job] = reconcile(run)
    assert (lost.state, lost.action) == (FlowState.ACTIVE, FlowAction.MARK_CRASHED)
    assert state_name(flow_run) == "Crashed" and job.situation is Situation.UNATTENDED

    [broken], [job] = reconcile(run)
    assert (broken.state, broken.action) == (FlowState.BROKEN, FlowAction.RETRY)
    assert state_name(flow_run) == "AwaitingRetry" and job.situation is Situation.UNATTENDED
    # No worker is there to take it; the job goes on meanwhile.
    flows, [job] = reconcile(run)
    assert flows == [] and job.situation is Situation.UNATTENDED

    set_state(flow_run, Cancelled())
    [cancelled], [job] = reconcile(run)
    assert (cancelled.state, cancelled.action) == (FlowState.CANCELLED, FlowAction.CANCEL_JOBS)
    assert job.situation is Situation.CANCELLED
    assert '"exit_code": 75' in (run.stage("sft").attempt(1) / "exit.json").read_text()


@pytest.mark.parametrize("part", [False, True])
def test_the_workers_hook_ends_the_job_of_a_process_that_is_gone(
    run: RunFolder, part: bool
) -> None:
    """What the run says counts: its data set and base model are not even there any more."""
    flow_run = start_flow_run(run, workspace=str(run.root.parent.parent))
    if part:
        own = start_flow_run(run)
        note_flow(run, FlowRecord(str(own), str(flow_run)))
    call_hook(flow_run, part=part)
    assert '"exit_code": 75' in (run.stage("sft").attempt(1) / "exit.json").read_text()
    assert reconcile(run) == ([], []), "the attempt is closed"


def test_the_hook_leaves_a_run_that_another_flow_run_took_over(run: RunFolder) -> None:
    old = start_flow_run(run, workspace=str(run.root.parent.parent))
    start_flow_run(run)
    call_hook(old)
    stop = run.stage("sft").attempt(1) / "stop-requested"
    assert not stop.exists()
    _, [job] = reconcile(run)
    assert job.situation is Situation.UNATTENDED
    stop.touch()


def call_hook(flow_run: UUID, *, part: bool = False) -> None:
    """As a worker does, after it has ended the process."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    from flows.pipeline import pipeline
    from flows.train import train

    with get_client(sync_client=True) as client:
        known = client.read_flow_run(flow_run)
    [hook] = (pipeline if part else train).on_cancellation_hooks
    hook(train, known, Cancelling())  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [False, True])
def test_a_flow_run_is_cancelled_though_its_worker_was_replaced(run: RunFolder, part: bool) -> None:
    """The page's button says `Cancelling`; no other worker takes that up. `part`: a pipeline's."""
    from prefect.states import Cancelling

    flow_run = start_flow_run(run)
    own = flow_run
    if part:
        own = start_flow_run(run)
        set_state(own, Cancelling())
        note_flow(run, FlowRecord(str(own), str(flow_run)))
    set_state(flow_run, Cancelling())
    [cancelled], [job] = reconcile(run)
    assert (cancelled.state, cancelled.action) == (FlowState.CANCELLED, FlowAction.CANCEL_JOBS)
    assert job.situation is Situation.CANCELLED
    assert '"exit_code": 75' in (run.stage("sft").attempt(1) / "exit.json").read_text()
    assert (state_name(flow_run), state_name(own)) == ("Cancelled", "Cancelled")
    assert reconcile(run) == ([], [])


@pytest.mark.parametrize("part", [False, True])
def test_a_suspended_flow_run_keeps_no_job(run: RunFolder, part: bool) -> None:
    """Its process died before it heard of it. `part`: a pipeline's, which was suspended itself."""
    from prefect.states import Pending, Suspended

    flow_run = start_flow_run(run)
    if part:
        own = start_flow_run(run)
        set_state(own, Pending(name="WaitsForParent"))
        note_flow(run, FlowRecord(str(own), str(flow_run)))
    set_state(flow_run, Suspended(timeout_seconds=86_400))
    [suspended], [job] = reconcile(run)
    assert (suspended.state, suspended.action) == (FlowState.SUSPENDED, FlowAction.CANCEL_JOBS)
    assert job.situation is Situation.CANCELLED
    assert '"exit_code": 75' in (run.stage("sft").attempt(1) / "exit.json").read_text()
    assert reconcile(run) == ([], []), "nothing is done to it before somebody resumes it"
    assert state_name(flow_run) == "Suspended"


def test_a_flow_run_of_another_server_is_not_judged(run: RunFolder) -> None:
    note_flow(run, FlowRecord(*["01234567-89ab-4cde-8f01-23456789abcd"] * 2))
    flows, jobs = reconcile(run)
    assert flows == [] and [job.situation for job in jobs] == [Situation.UNATTENDED]
    from training.cluster.reconcile import request_cancel

    request_cancel(Workspace(run.root.parent.parent), "r1")
    _, [job] = reconcile(run)
    assert job.situation is Situation.CANCELLED
