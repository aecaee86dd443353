"""The same trainer under a plain `sbatch --requeue` script, and under submitit.

The script is what cluster handbooks show: srun starts the ranks, a fixed count of them, and Slurm
requeues the job when a node fails. submitit's job does the same through its pickled callable with
a `checkpoint` method. Both resume from the trainer's newest checkpoint when they run again; the
question is whether and when they do. What is over, or does not come back in time, counts as lost.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.chaos.lab import Lab, LabError, Run
from benchmarks.chaos.supervisor import REPOSITORY
from training.cluster.marks import MARK, marked

PEERS = ("sbatch --requeue", "submitit")
PATIENCE_S, PATIENCE_SHORT_S = 150.0, 75.0
LOST = float("inf")
# Of which Slurm starts a job anew, or may.
_ALIVE = frozenset("PENDING RUNNING COMPLETING CONFIGURING REQUEUED SUSPENDED".split())  # noqa: SIM905

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


def available() -> list[str]:
    """Peers that can be run here."""
    return [p for p in PEERS if p != "submitit" or importlib.util.find_spec("submitit")]


def call(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What it prints. Raises `LabError` with its complaint."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment)
    if done.returncode:
        raise LabError(f"{command[0]}: {done.stderr[-500:]}")
    return done.stdout


def job_number(printed: str) -> str:
    """Of `Submitted batch job 7`, and of submitit's bare number."""
    return printed.split()[-1]


def is_over(job_id: str) -> bool:
    """Whether Slurm is done with a job for good."""
    command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_id}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return "Invalid job id" in done.stderr
    return not _ALIVE & set(done.stdout.split())


class PeerRun(Run):
    """A run that only Slurm looks after."""

    job_id: str

    @classmethod
    def of(cls, run: Run) -> PeerRun:
        """The same run, without a supervisor."""
        adopted = cls.__new__(cls)
        adopted.__dict__ = run.__dict__
        return adopted

    @property
    def attempt_dir(self) -> Path:
        return self.stage / "attempts" / "1"

    def submit(self, how: str, minutes: int = 30) -> PeerRun:
        attempt = self.attempt_dir
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
            self.job_id = job_number(call([sys.executable, "-c", source]))
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
            self.job_id = job_number(call(["sbatch", str(script)]))
        return self

    def ranks(self, node: str = "") -> list[int]:
        """Living rank processes, of a node if given; the second rank first."""

        def wanted(environment: dict[str, str]) -> bool:
            ours = environment[MARK].startswith(f"{self.stage}/")
            return ours and "RANK" in environment and environment["SLURMD_NODENAME"] in (
                node or environment["SLURMD_NODENAME"],
            )  # fmt: skip

        found = [pid for pid in marked(wanted) if _is_trainer(pid)]
        return sorted(found, key=lambda pid: int(variable(pid, "RANK") or 0), reverse=True)

    def seconds_to_recover(self, since: float, within_s: float) -> float:
        """`LOST` when it does not train again in time, or never will."""
        deadline = time.monotonic() + within_s
        looked = time.monotonic()
        while time.monotonic() < deadline:
            try:
                return self.recovered(since, 1.0)
            except LabError:
                pass  # not yet
            if time.monotonic() - looked > 5:
                looked = time.monotonic()
                if is_over(self.job_id):
                    return LOST
        return LOST

    def until_over(self, within_s: float) -> bool:
        """Wait for the end of the job; False when it goes on."""
        deadline = time.monotonic() + within_s
        while not is_over(self.job_id):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True

    def starts(self) -> int:
        """How often ranks were started that trained."""
        return len({line["pid"] for line in self.ledger()})

    def said(self) -> str:
        """Whatever the job has written for people to read."""
        files = [*self.attempt_dir.glob("*.log"), *self.attempt_dir.glob("*.err")]
        files += self.attempt_dir.glob("*.out")
        return "\n".join(path.read_text(errors="replace") for path in sorted(files))


def peer_run(
    lab: Lab, how: str, settings: Mapping[str, object], *, minutes: int = 30, until_step: int = 0
) -> PeerRun:
    """Submitted, and as far as `until_step`."""
    run = PeerRun.of(lab.run(f"peer-{how.split()[0]}", dict(settings))).submit(how, minutes)
    if until_step:
        run.until_step(until_step)
    return run


def variable(pid: int, name: str) -> str:
    """Of a process's environment; "" without."""
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    found = re.search(rb"(?:^|\0)" + name.encode() + rb"=([^\0]*)", environment)
    return os.fsdecode(found[1]) if found else ""


def _is_trainer(pid: int) -> bool:
    try:
        return b"benchmarks.chaos.trainer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
