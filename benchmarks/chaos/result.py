"""What an experiment returns, and what several of them need."""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks.chaos.lab import LabError, Run
from training.cluster.job import TERMINAL, Job, JobState
from training.cluster.slurm import SlurmLauncher

STEP_S = 0.1


class Result(NamedTuple):
    """A figure. `target` is a comparison as in `benchmarks.measure`."""

    name: str
    value: float
    unit: str
    target: str


def wait_for(job: Job, within_s: float = 120.0) -> JobState:
    """Submit a job without a supervisor and wait for its end."""
    launcher = SlurmLauncher()
    handle = launcher.submit(job)
    deadline = time.monotonic() + within_s
    while (status := launcher.poll(handle, job)).state not in TERMINAL:
        if time.monotonic() > deadline:
            raise LabError(f"{job.key}: still {status}")
        time.sleep(0.3)
    return status.state


def all_in_one_job(run: Run, generations: int) -> None:
    if run.attempts() != 1 or len(run.events("started")) != generations:
        raise LabError(
            f"{run.attempts()} jobs and {len(run.events('started'))} generations, not 1 and "
            f"{generations}:\n{run.story()}"
        )
