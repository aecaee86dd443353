"""Training on a real Slurm: two nodes, a rank killed, the run goes on and is published."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from slurm_on_one_host import Cluster
from tiny_training import question, tiny_config, weights_hash, write_dataset

from benchmarks.training.tiny_model import write_tiny_model
from training.checkpoints import newest_complete
from training.cluster.health.config import HealthSettings, LinkLimits
from training.cluster.job import JobState
from training.cluster.reconcile import reconcile
from training.failure_texts import TrainingStoppedError
from training.metrics import METRICS_NAME, MetricsFollower, read_metrics
from training.progress import TrainProgress
from training.run_events import EVENTS_NAME, read_events
from training.train import plan, train
from workspace import registry
from workspace.paths import Workspace

pytestmark = pytest.mark.slurm

STEPS = 60
ROWS = [question(number) for number in range(64)]


def kill_rank_after_step(step: int, attempt_dir: Path, rank: int) -> bool:
    """SIGKILL to one rank's trainer once it has trained `step` steps; whether that came to pass."""
    metrics = MetricsFollower(attempt_dir / METRICS_NAME)
    deadline = time.monotonic() + 300
    while not any(seen.step > step for seen in metrics.new()):
        if (attempt_dir / "outcome.json").exists() or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    marks = {f"DSM_ATTEMPT_DIR={attempt_dir}".encode(), f"RANK={rank}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                os.kill(int(entry.name), signal.SIGKILL)
                return True
        except OSError:
            continue
    return False


def test_a_killed_rank_costs_only_the_steps_since_the_checkpoint(
    cluster: Cluster, tmp_path: Path
) -> None:
    base = write_tiny_model(tmp_path / "base")
    workspace = tmp_path / "workspace"
    write_dataset(workspace, ROWS)
    config = tiny_config(workspace, base, steps=STEPS, launcher="slurm", nodes=2, time_limit_s=600)
    stage = plan(config).folder.stage("sft")

    with ThreadPoolExecutor() as pool:
        killed = pool.submit(kill_rank_after_step, 10, stage.attempt(1), 1)
        result = train(config)
        assert killed.result()

    events = read_events(result.directory.parent / EVENTS_NAME)
    [ended] = [event for event in events if event.event == "ended" and event.generation == 1]
    assert (ended.facts["cause"], ended.nodes) == ("rank_killed", ("node2",))
    assert stage.latest_attempt() == 1, "the ranks were started again in the same job"
    assert [e.nodes for e in events if e.event == "started"] == [("node1", "node2")] * 2
    steps = read_metrics(result.directory.parent, "sft")
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    assert ended.facts["newest_step"] >= 10
    [version] = registry.versions(Workspace(workspace), "dsm")
    assert workspace / version.path == result.directory

    # The same ranks on this machine, undisturbed: the same weights, bit for bit.
    write_dataset(tmp_path / "local", ROWS)
    undisturbed = train(tiny_config(tmp_path / "local", base, steps=STEPS, processes_per_node=2))
    assert weights_hash(result.directory) == weights_hash(undisturbed.directory)


def test_a_run_stops_with_a_checkpoint_of_all_nodes(cluster: Cluster, tmp_path: Path) -> None:
    write_dataset(tmp_path, ROWS)
    config = tiny_config(
        tmp_path,
        write_tiny_model(tmp_path / "base"),
        steps=5000,
        launcher="slurm",
        nodes=2,
        time_limit_s=600,
        health=HealthSettings(links=LinkLimits(enabled=False)),
    )
    stage = plan(config).folder.stage("sft")
    seen: list[TrainProgress] = []
    with pytest.raises(TrainingStoppedError, match="newest checkpoint: step"):
        train(config, observe=seen.append, should_stop=lambda: bool(seen) and seen[-1].step > 0)
    assert seen[-1].state is JobState.RESUMABLE
    newest = newest_complete(stage.checkpoints)
    assert newest is not None and newest.step == seen[-1].step
    assert "Traceback" not in "".join(p.read_text() for p in stage.attempt(1).glob("logs/rank-*"))
    outcome = json.loads((stage.attempt(1) / "outcome.json").read_text())
    assert outcome["state"] == JobState.RESUMABLE
    assert reconcile(Workspace(tmp_path)) == [], "nothing is left to mend"
