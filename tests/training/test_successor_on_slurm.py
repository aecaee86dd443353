"""A job that waits behind the running one, on a real Slurm: who trains on when what dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_on_one_host import Cluster

from benchmarks.chaos.lab import Run
from benchmarks.chaos.supervisor import RunSettings
from benchmarks.chaos.trainer import Settings
from training.cluster.slurm import read_handle
from training.cluster.slurm_client import SlurmClient
from training.cluster.successor import Verdict, read_verdict

pytestmark = pytest.mark.slurm


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Callable[..., Run]:
    def make(steps: int, **layout: Any) -> Run:
        root = tmp_path / "runs" / f"insured-{tmp_path.name[-12:].replace('_', '-')}" / "sft"
        settings = Settings(str(root), steps=steps, step_s=0.05, save_every=10)
        values = {"nodes": 1, "restarts": 0, "successor": True, "successor_wait_s": 5.0, **layout}
        return Run(RunSettings(str(root), settings, **values)).supervise()

    return make


def waiting(run: Run, number: int = 2) -> str:
    """The id of the job that waits to become attempt `number`."""
    folder = run.stage / "successors" / str(number)
    run.until(lambda: read_handle(folder), "had a job waiting")
    handle = read_handle(folder)
    assert handle is not None
    return handle.job_id


def queued(run: Run) -> list[str]:
    """Ids of the run's jobs that Slurm still holds."""
    listing = subprocess.run(
        ["squeue", "--me", "--noheader", "--format=%A %Z"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [line.split(" ", 1) for line in listing.splitlines()]
    return [job for job, folder in lines if Path(folder).is_relative_to(run.stage)]


def job_of(run: Run, attempt: int) -> str:
    handle = read_handle(run.stage / "attempts" / str(attempt))
    assert handle is not None
    return handle.job_id


def test_the_waiting_job_takes_over_at_once(start: Callable[..., Run]) -> None:
    run = start(150)
    successor = waiting(run)
    run.until_step(15)
    assert set(queued(run)) == {job_of(run, 1), successor}
    os.kill(run.rank_pid(run.nodes()[0]), signal.SIGKILL)
    run.finish()
    assert job_of(run, 2) == successor
    assert run.attempts() == 2
    assert {line["attempt"] for line in run.ledger()} == {1, 2}
    names = [event.event for event in run.events()]
    assert names.index("successor_queued") < names.index("successor_took_over")
    assert read_verdict(run.stage / "successors" / "2") is Verdict.TAKEN
    run.until(lambda: not queued(run), "left the queue")  # the one behind the second attempt


def test_after_success_nothing_waits(start: Callable[..., Run]) -> None:
    run = start(60)
    successor = waiting(run)
    SlurmClient().exclude(successor, ["node2", "node3"])
    shown = subprocess.run(
        ["scontrol", "show", "job", successor], capture_output=True, text=True, check=True
    ).stdout
    assert "ExcNodeList=node2,node3" in shown
    run.finish()
    assert run.attempts() == 1
    run.until(lambda: not queued(run), "left the queue")


def test_without_a_supervisor_it_trains_to_the_end(start: Callable[..., Run]) -> None:
    run = start(150)
    successor = waiting(run)
    run.until_step(15)
    run.kill_supervisor()
    os.kill(run.coordinator_pid(), signal.SIGKILL)
    run.until((run.stage / "result.json").exists, "trained on alone", 240)
    run.until(lambda: not queued(run), "left the queue")
    result = json.loads((run.stage / "result.json").read_text())
    assert (result["attempt"], job_of(run, 2)) == (2, successor)
    run.supervise().finish()
    assert run.attempts() == 2
    told = {event.event: event for event in run.events()}
    assert told["successor_alone"].attempt == 2
    assert (run.stage / "attempts" / "1" / "outcome.json").exists()
    assert (
        json.loads((run.stage / "attempts" / "2" / "outcome.json").read_text())["cause"] == "done"
    )


def test_a_stop_leaves_no_job(start: Callable[..., Run]) -> None:
    run = start(20_000)
    waiting(run)
    run.until_step(15)
    (run.stage / "stop").touch()
    assert run.wait() != 0
    assert "stopped on request" in run.log()
    run.until(lambda: not queued(run), "left the queue")
    time.sleep(2)  # longer than Slurm takes to start what waits
    assert queued(run) == [] and run.attempts() == 1


def test_a_job_cancelled_by_hand_is_not_followed(start: Callable[..., Run]) -> None:
    run = start(20_000)
    waiting(run)
    run.until_step(15)
    run.kill_supervisor()
    subprocess.run(["scancel", job_of(run, 1)], check=True)
    run.until(lambda: not queued(run), "left the queue")
    assert run.attempts() == 1, "a cancelled job is not followed by the one that waits"


def test_a_killed_supervisor_finds_the_one_that_waits(start: Callable[..., Run]) -> None:
    run = start(200)
    successor = waiting(run)
    for _ in range(3):
        run.kill_supervisor()
        run.supervise()
    run.until_step(30)
    assert set(queued(run)) == {job_of(run, 1), successor}
    os.kill(run.rank_pid(run.nodes()[0]), signal.SIGKILL)
    run.kill_supervisor()
    run.supervise()
    run.finish()
    assert job_of(run, 2) == successor and run.attempts() == 2
