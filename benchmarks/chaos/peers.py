"""The same trainer and faults under a plain `sbatch --requeue` script, and under submitit.

The script is what cluster handbooks show: srun starts the ranks, a fixed count of them, and Slurm
requeues the job when a node fails. submitit's job does the same through its pickled callable with
a `checkpoint` method. Both resume from the trainer's newest checkpoint when they run again; the
question is whether and when they do. What does not come back within `PATIENCE_S` counts as lost.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos.disks import fill, small_disk
from benchmarks.chaos.lab import Lab, LabError, Run
from benchmarks.chaos.result import STEP_S
from benchmarks.chaos.supervisor import REPOSITORY
from training.cluster.marks import MARK, marked

PATIENCE_S = 150.0
LOST = float("inf")

SUBMIT = """
import os, sys
import submitit
from submitit.helpers import DelayedSubmission

class Ranks:
    def __init__(self, command): self.command = command
    def __call__(self):
        job = submitit.JobEnvironment()
        os.environ.update(RANK=str(job.global_rank), LOCAL_RANK=str(job.local_rank),
                          WORLD_SIZE=str(job.num_tasks), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(20000 + int(job.job_id) % 12000), **EXTRA)
        import subprocess
        subprocess.run(self.command, check=True)
    def checkpoint(self): return DelayedSubmission(Ranks(self.command))

EXTRA = {extra!r}
executor = submitit.SlurmExecutor(folder={folder!r}, max_num_timeout=3)
executor.update_parameters(nodes=2, ntasks_per_node=1, time={minutes}, job_name={name!r},
                           signal_delay_s=40, additional_parameters={{"requeue": True}})
print(executor.submit(Ranks({command!r})).job_id)
"""

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name} --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append
#SBATCH --output={folder}/job.log --time={minutes} --signal=B:USR2@40
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000)) {exports}
srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=0 WORLD_SIZE=$SLURM_NTASKS exec {command}'
"""


class PeerRun(Run):
    """A run that only Slurm looks after."""

    @classmethod
    def of(cls, run: Run) -> PeerRun:
        """The same run, without a supervisor."""
        adopted = cls.__new__(cls)
        adopted.__dict__ = run.__dict__
        return adopted

    def submit(self, how: str, minutes: int = 30) -> PeerRun:
        attempt = self.stage / "attempts" / "1"
        attempt.mkdir(parents=True)
        command = [
            sys.executable, "-m", "benchmarks.chaos.trainer", str(self.stage / "settings.json"),
        ]  # fmt: skip
        extra = {MARK: str(attempt), "PYTHONPATH": str(REPOSITORY)}
        name = self.stage.parent.name
        if how == "submitit":
            source = SUBMIT.format(
                extra=extra, folder=str(attempt), minutes=minutes, name=name, command=command
            )
            self._call([sys.executable, "-c", source])
        else:
            script = attempt / "plain.sbatch"
            exports = " ".join(f"{key}={shlex.quote(value)}" for key, value in extra.items())
            script.write_text(
                SCRIPT.format(
                    name=name,
                    folder=attempt,
                    minutes=minutes,
                    exports=exports,
                    command=shlex.join(command),
                )
            )
            self._call(["sbatch", str(script)])
        return self

    def ranks(self, node: str = "") -> list[int]:
        """Living rank processes, of a node if given; the second rank first."""

        def wanted(environment: dict[str, str]) -> bool:
            ours = environment[MARK].startswith(f"{self.stage}/")
            return ours and "RANK" in environment and environment["SLURMD_NODENAME"] in (
                node or environment["SLURMD_NODENAME"],
            )  # fmt: skip

        found = [pid for pid in marked(wanted) if _is_trainer(pid)]
        return sorted(found, key=_rank_of, reverse=True)

    def seconds_to_recover(self, since: float) -> float:
        """`LOST` when it does not train again in time."""
        try:
            return self.recovered(since, PATIENCE_S)
        except LabError:
            return LOST

    def _call(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
        if done.returncode:
            raise LabError(f"{command[0]}: {done.stderr[-500:]}")


def after_rank_kill(lab: Lab, how: str) -> float:
    """Seconds until it trains again after kill -9 of a rank."""
    run = _started(lab, how)
    when = time.time()
    os.kill(run.ranks()[0], signal.SIGKILL)
    return run.seconds_to_recover(when)


def after_node_death(lab: Lab, how: str) -> float:
    """Seconds until it trains again after a node died without a word."""
    run = _started(lab, how)
    when = time.time()
    victim = run.ranks()[0]
    environment = Path(f"/proc/{victim}/environ").read_bytes().split(b"\0")
    node = next(e for e in environment if e.startswith(b"SLURMD_NODENAME=")).decode()[16:]
    lab.kill_node(run, node, silently=True)
    seconds = run.seconds_to_recover(when)
    for pid in run.ranks(node):
        os.kill(pid, signal.SIGKILL)
    return seconds


def after_hang(lab: Lab, how: str) -> float:
    """Seconds until it trains again after a rank was stopped."""
    run = _started(lab, how)
    when = time.time()
    victim = run.ranks()[0]
    os.kill(victim, signal.SIGSTOP)
    seconds = run.seconds_to_recover(when)
    os.kill(victim, signal.SIGKILL)
    return seconds


def starts_with_a_bug(lab: Lab, how: str) -> float:
    """How often it is started when it fails at the same step every time (0: for ever)."""
    run = _peer(lab, how, {"steps": 60, "bug_rank": 1, "bug_step": 7})
    run.until_step(6)
    return _starts(run)


def over_the_time_limit(lab: Lab, how: str) -> float:
    """Steps lost or trained twice over a job's time limit; `LOST` when nothing follows it."""
    run = _peer(lab, how, {"steps": 100_000, "step_s": STEP_S, "save_every": 10_000}, minutes=1)
    run.until_step(1)
    first = run.ledger()[0]["pid"]

    def next_job() -> dict[str, Any] | None:
        return next((line for line in run.ledger() if line["pid"] != first), None)

    try:
        run.until(next_job, "went on", 60 + PATIENCE_S)
    except LabError:
        return LOST
    resumed = next_job()
    assert resumed is not None
    trained = max(line["step"] for line in run.ledger() if line["pid"] == first)
    return float(abs(resumed["step"] - trained - 1))


def starts_on_a_full_disk(lab: Lab, how: str) -> float:
    """How often it is started when the checkpoints' disk fills up."""
    run = lab.run(
        f"peer-{how.split()[0]}", {"steps": 400, "step_s": STEP_S, "payload_bytes": 200_000}
    )
    with small_disk(run.stage / "checkpoints") as folder:
        PeerRun.of(run).submit(how).until_step(25)
        fill(folder)
        return _starts(run)


def _starts(run: Run) -> float:
    time.sleep(20)
    return float(len({line["pid"] for line in run.ledger()}))


def _started(lab: Lab, how: str) -> PeerRun:
    run = _peer(lab, how, {"steps": 100_000, "step_s": 0.1})
    run.until_step(25)
    return run


def _peer(lab: Lab, how: str, settings: dict[str, object], minutes: int = 30) -> PeerRun:
    run = lab.run(f"peer-{how.split()[0]}", settings)
    return PeerRun.of(run).submit(how, minutes)


def _is_trainer(pid: int) -> bool:
    try:
        return b"benchmarks.chaos.trainer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _rank_of(pid: int) -> int:
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((int(e[5:]) for e in environment if e.startswith(b"RANK=")), 0)


PEERS = ("sbatch --requeue", "submitit")
MEASURED: dict[str, Callable[[Lab, str], float]] = {
    "C1": after_rank_kill,
    "C3": after_node_death,
    "C7": after_hang,
    "C8": over_the_time_limit,
    "C9": starts_with_a_bug,
    "C13": starts_on_a_full_disk,
}


def available() -> list[str]:
    """Peers that can be run here."""
    return [p for p in PEERS if p != "submitit" or importlib.util.find_spec("submitit")]
