"""A long run with many faults, and what watching costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos.lab import Lab, Run
from benchmarks.chaos.result import STEP_S, Result
from benchmarks.chaos.supervisor import REPOSITORY
from training.goodput.account import account
from training.goodput.buckets import Bucket
from training.goodput.traces import read_traces
from training.trainers.save_interval import young_interval_s

FAULTS = ("kill", "hang", "node", "kill")


class Schedule(NamedTuple):
    """A soak: a fault of another kind every `every_s` seconds, in `minutes`."""

    minutes: float
    every_s: float

    @property
    def faults(self) -> tuple[str, ...]:
        return FAULTS[: int(self.minutes * 60 / self.every_s) - 1]

    @property
    def steps(self) -> int:
        """That take most of it, recoveries included."""
        return int(self.minutes * 60 / STEP_S * 0.93)


def schedule(short: bool) -> Schedule:
    return Schedule(3, 90) if short else Schedule(20, 300)


def soak(lab: Lab, short: bool) -> list[Result]:
    """C15: a long run with a fault of another kind every five minutes."""
    plan = schedule(short)
    run = lab.run(
        "soak", {"steps": plan.steps, "step_s": STEP_S, "save_every": 100}, spares=1, processes=1,
        step_limit_s=5.0,
    ).supervise()  # fmt: skip
    run.until_step(1)
    began = run.ledger()[0]["time"]
    for at, fault in enumerate(plan.faults, 1):
        while time.time() < began + at * plan.every_s:
            time.sleep(0.2)
        node = run.nodes()[1]
        when = time.time()
        if fault == "kill":
            os.kill(run.rank_pid(node), signal.SIGKILL)
        elif fault == "hang":
            os.kill(run.rank_pid(node), signal.SIGSTOP)
        else:
            lab.kill_node(run, node, silently=True)
        run.recovered(when)
    run.finish(plan.minutes * 60 * 3)
    seconds = lab.node_seconds(run)
    lab.revive()
    return _goodput(run, len(plan.faults), seconds)


def _goodput(run: Run, faults: int, slurm_s: float) -> list[Result]:
    """By the accountant. `slurm_s`: seconds of nodes that the run's jobs had, as Slurm says."""
    found = account(run.stage.parent.name, read_traces(run.stage.parent))
    spent = found.device_seconds
    assert found.ettr is not None
    paid = sum(spent.values()) - spent[Bucket.QUEUE]
    idle = spent[Bucket.IDLE_SPARE] + spent[Bucket.QUEUE]
    lost = sum(spent.values()) - idle - spent[Bucket.PRODUCTIVE] - spent[Bucket.CHECKPOINT]
    lost_s = lost / run.config.nodes / max(1, faults)
    return [
        Result("ETTR of the soak, by the accountant", found.ettr, "", ">= 0.9"),
        Result("buckets against what Slurm says was allocated", 100 * abs(paid / slurm_s - 1),
               "% apart", "<= 1"),
        Result("lost to a fault, the start and recomputed steps included, mean", lost_s, "s",
               "<= 30"),
        extrapolated(lost_s),
    ]  # fmt: skip


def extrapolated(recovery_s: float) -> Result:
    """ETTR = 1 - d/T - (T/2 + R)/M at a failure every M = 3 h and saves that hold training up for
    d = 10 s, every T seconds as is best (Young). `recovery_s` holds some recomputed steps already,
    so it errs on the dark side."""
    mtbf_s, save_s = 3 * 3600.0, 10.0
    every_s = young_interval_s(save_s, mtbf_s)
    ettr = 1 - save_s / every_s - (every_s / 2 + recovery_s) / mtbf_s
    return Result("ETTR at a failure every 3 h and saves of 10 s, computed", ettr, "", ">= 0.95")


def overhead(lab: Lab, short: bool) -> list[Result]:
    """C20: what heartbeats cost a rank, and what agents and coordinator cost a node."""
    run = lab.run("overhead", {"steps": 200 if short else 600, "step_s": STEP_S}).supervise()
    run.until_step(20)
    node = run.nodes()[0]
    agents = [*run.processes(node, ranks=False), run.coordinator_pid()]
    before, since = _cpu_seconds(agents), time.time()
    run.until_step(150 if short else 500)
    share = (_cpu_seconds(agents) - before) / (time.time() - since)
    run.finish()
    cost_us = _beat_cost_us()
    return [
        Result("a heartbeat, share of a step of 100 ms", cost_us / 1e6 / STEP_S, "", "<= 0.01"),
        Result("agent and coordinator, share of one core", share, "", "<= 0.01"),
    ]


def _beat_cost_us() -> float:
    source = (
        "import sys, time; from pathlib import Path\n"
        "from training.cluster.heartbeat import BeatReader, Heartbeat\n"
        "reader = BeatReader(Path('/dev/shm/dsm-chaos-beat')); beat = Heartbeat(reader.path)\n"
        "start = time.process_time()\n"
        "for number in range(100_000): beat.step(number, 0.1)\n"
        "print((time.process_time() - start) * 10); reader.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return float(done.stdout)


def _cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
