from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_training import question, tiny_config, tiny_spec, write_dataset

from benchmarks.training.tiny_model import write_tiny_model
from training.checkpoints import newest_complete
from training.ledger import audit
from training.memory_watch import (
    BLOCK_STEPS,
    LeakDetector,
    MemoryWatch,
    NoticeFollower,
    Usage,
    current_usage,
    memory_limit,
    newest_usage,
)
from training.metrics import read_metrics
from training.run_events import EVENTS_NAME, read_events
from training.train import plan, train
from training.trainers.settings import SftSettings
from training.trainers.shared_settings import MemorySettings

MIB = 1 << 20


def slopes(series: Callable[[int], float], steps: int) -> list[float]:
    """MiB a step that the detectors see, in the order in which they see them."""
    detectors = [LeakDetector(block) for block in BLOCK_STEPS]
    seen = (d.add(int(series(step) * MIB)) for step in range(steps) for d in detectors)
    return [slope / MIB for slope in seen if slope]


@pytest.mark.parametrize("seed", range(3))
def test_a_leak_is_seen_under_swings_a_hundred_times_larger(seed: int) -> None:
    noise = random.Random(seed)
    found = slopes(lambda step: 3000 + 2 * step + noise.choice([0, 0, 200, 900]), 600)
    assert found
    assert sorted(found)[len(found) // 2] == pytest.approx(2, rel=0.25)


def test_a_slow_leak_shows_in_long_blocks() -> None:
    noise = random.Random(1)
    found = slopes(lambda step: 800 + 0.02 * step + noise.uniform(0, 100), 9000)
    assert found and found[-1] == pytest.approx(0.02, rel=0.3)
    assert not slopes(lambda step: 800 + 0.02 * step, 400), "8 MiB are not worth a word"


@pytest.mark.parametrize(
    "series",
    [
        lambda step, noise: 4000 + noise.uniform(0, 2000),
        lambda step, noise: 4000 + 25 * (step % 100),  # a cache that is emptied
        lambda step, noise: 4000 + 600 * (step > 150) + noise.uniform(0, 50),  # once more, for good
        lambda step, noise: 4000 - 2000 * math.exp(-step / 25) + noise.uniform(0, 50),
        lambda step, noise: 4000 + 500 * math.sin(step / 16),
        lambda step, noise: 4000 - step,
    ],
    ids=["noise", "sawtooth", "one-step", "fills-up", "wave", "falls"],
)
def test_what_is_no_leak(series: Callable[[int, random.Random], float]) -> None:
    noise = random.Random(0)
    start = 20  # the watch skips a warm-up
    assert not slopes(lambda step: series(step + start, noise), 4000)


def test_limits_of_control_groups_and_slurm(tmp_path: Path) -> None:
    machine = memory_limit(root=tmp_path, environment={})
    assert machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/job_7/step_0\n")
    group = tmp_path / "sys/fs/cgroup/system.slice/job_7"
    (group / "step_0").mkdir(parents=True)
    (group / "step_0/memory.max").write_text("max\n")
    (group / "memory.max").write_text(f"{900 * MIB}\n")
    assert memory_limit(root=tmp_path, environment={}) == 900 * MIB

    (tmp_path / "proc/self/cgroup").write_text("5:cpu:/x\n4:memory:/slurm/job_7\n")
    old = tmp_path / "sys/fs/cgroup/memory/slurm/job_7"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text(f"{800 * MIB}\n")
    assert memory_limit(root=tmp_path, environment={}) == 800 * MIB

    slurm = {"SLURM_MEM_PER_NODE": "700", "LOCAL_WORLD_SIZE": "4"}
    assert memory_limit(root=tmp_path, environment=slurm) == 175 * MIB
    by_cpu = {"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "6"}
    assert memory_limit(root=tmp_path, environment=by_cpu) == 600 * MIB
    whole_node = {"SLURM_MEM_PER_NODE": "0"}
    assert memory_limit(root=tmp_path, environment=whole_node) == 800 * MIB
    assert memory_limit(0.5, root=tmp_path, environment={}) == 512 * MIB


def test_memory_of_children_counts(tmp_path: Path) -> None:
    before = current_usage(gpu=False).host
    script = "held = b'x' * (64 << 20); print('held', flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        assert current_usage(gpu=False).host - before > 60 * MIB
    finally:
        child.communicate(b"\n")


def test_no_restart_when_it_would_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that needs nine tenths of the limit needs them in the next attempt too."""
    watch = MemoryWatch(tmp_path, rank=0, settings=MemorySettings(), gpu=False, limit=1000 * MIB)
    monkeypatch.setattr("training.memory_watch.current_usage", lambda gpu: Usage(900 * MIB))
    for step in range(1, 200):
        watch.after_step(step, 1000)
    assert not watch.wants_restart
    [notice] = NoticeFollower(tmp_path).new()
    assert notice.event == "memory_short" and "0.88 GiB of 0.98 GiB" in notice.detail


def test_what_each_rank_held_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = Usage(3 * MIB, gpu_allocated=6, gpu_reserved=8, gpu_peak=7, gpu_total=10)
    monkeypatch.setattr("training.memory_watch.current_usage", lambda gpu: used)
    for rank in (0, 11):
        settings = MemorySettings()
        watch = MemoryWatch(tmp_path, rank=rank, settings=settings, gpu=True, limit=1000 * MIB)
        watch.after_step(1, 10)
        with watch.path.open("ab") as stream:
            stream.write(b'{"time": 1, "event": "memory_leak"}\n{"time": 2, "st')
    assert newest_usage(tmp_path) == {0: used, 11: used}


def test_fragmentation_of_a_gpu() -> None:
    assert Usage(0, gpu_allocated=6, gpu_reserved=8, gpu_total=10).fragmentation == 0.25
    assert Usage(0).fragmentation == 0.0


@pytest.mark.model
def test_a_leaking_trainer_tells_saves_and_leaves_before_the_limit(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base")
    leaking = run_trainer(tmp_path / "leaking", base, leak_mb=2)
    assert leaking.code == 75
    events = [notice.event for notice in leaking.notices]
    assert events == ["memory_leak", "memory_restart"]
    leak, restart = leaking.notices
    assert leak.step + 20 < restart.step
    rate = float(leak.detail.split(" MiB a step")[0].rsplit(" ", 1)[1])
    assert rate == pytest.approx(2, rel=0.3)
    newest = newest_complete(leaking.folder / "sft" / "checkpoints")
    assert newest is not None and newest.step == restart.step
    held = [line.memory["host"] for line in read_metrics(leaking.folder, "sft")]
    assert 0.7 * LIMIT < held[-1] < 0.85 * LIMIT

    clean = run_trainer(tmp_path / "clean", base, leak_mb=0, steps=180)
    assert (clean.code, clean.notices) == (0, [])


@pytest.mark.model
def test_a_run_outlives_its_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervised: the ranks leave before the limit, the next attempt goes on, nothing is lost."""
    here = Path(__file__).resolve()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here.parents[2], here.parent))))
    monkeypatch.setenv("LEAK_MB", "3")
    monkeypatch.setattr("training.stage_job.trainer_module", lambda *of: "leaking_trainer")
    write_dataset(tmp_path / "workspace", [question(number) for number in range(64)])
    config = tiny_config(
        tmp_path / "workspace",
        write_tiny_model(tmp_path / "base"),
        steps=200,
        memory=MemorySettings(limit_gib=LIMIT / (1 << 30)),
        checkpoint_every_steps=1000,  # so that the restart's is the only one
    )
    train(config)

    folder = plan(config).folder
    stage = folder.stage("sft")
    events = read_events(folder.root / EVENTS_NAME)
    restarts = [event for event in events if event.event == "memory_restart"]
    assert restarts and restarts[0].attempt == 1
    # Each ends an attempt that asks to be resumed; the last one finishes.
    attempts = range(1, stage.latest_attempt() + 1)
    ends = [json.loads((stage.attempt(n) / "outcome.json").read_text())["state"] for n in attempts]
    assert ends == ["resumable"] * len(restarts) + ["succeeded"]
    assert max(line.memory["host"] for line in read_metrics(folder.root, "sft")) < LIMIT
    found = audit(stage.root)
    assert (found.faults, found.steps, found.retrained_steps) == ([], 200, 0)


LIMIT = 1 << 30


class Ended:
    def __init__(self, folder: Path, code: int) -> None:
        self.folder, self.code = folder, code
        self.notices = NoticeFollower(folder / "sft" / "attempts" / "1").new()


def run_trainer(folder: Path, base: Path, *, leak_mb: int, steps: int = 260) -> Ended:
    """A run in a process of its own, with a limit of 1 GiB."""
    settings = SftSettings(
        epochs=1000, max_steps=steps, token_budget=0, rows_per_step=2, tokens_per_forward=256
    )
    memory = MemorySettings(limit_gib=LIMIT / (1 << 30))
    spec = tiny_spec(
        folder / "sft", base, "sft", sft=settings, memory=memory, checkpoint_every_steps=1000
    )
    spec_file = spec.attempt_dir / "spec.json"
    spec_file.write_text(spec.model_dump_json())
    root = Path(__file__).resolve().parents[2]
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("leaking_trainer.py")), str(spec_file)],
        env={
            **os.environ,
            "LEAK_MB": str(leak_mb),
            "PYTHONPATH": str(root),
            "OMP_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "1",
        },
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert process.returncode in (0, 75), process.stderr.decode()[-2000:]
    lines = (spec.attempt_dir / "memory" / "rank-0000.jsonl").read_text().splitlines()
    assert all(json.loads(line)["step"] > 0 for line in lines)
    return Ended(folder, process.returncode)
