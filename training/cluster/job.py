"""A training job and the one interface that every launcher offers.

The supervisor (`training.train`) submits an attempt, polls it, reads its metrics from disk, and
decides what comes next. It may die and come back at any time: `submit` is idempotent by
`job.key` and the handle is on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from training.cluster.hang import SectionLimits
from training.cluster.health.config import HealthSettings, LinkLimits

# Contract between trainers and supervisor.
EXIT_DONE = 0
EXIT_RESUME = 75  # stopped on request or before walltime, checkpoint written: run me again
EXIT_NEVER_AGAIN = 93  # a fault of the user's input or configuration: do not retry

# A launcher asks the ranks to stop by creating this file in `Job.attempt_dir`; rank 0 looks for it
# after each step, all ranks agree, checkpoint and exit with EXIT_RESUME. It works over any shared
# file system, where torchrun would die of a signal or swallow it.
STOP_FILE = "stop-requested"
# Beside it where the job itself is to end, not only its ranks (the time limit, a cancellation).
LEAVE_FILE = "leave-requested"
CANCEL_FILE = "cancel-requested"  # in `Job.attempt_dir`: the next `reconcile` ends the job
OUTCOME_NAME = "outcome.json"  # in `Job.attempt_dir`: how it ended, and what followed
FIRST_FAILURE_NAME = "first-failure.json"  # in `Job.attempt_dir`: what brought the job to its end


@dataclass(frozen=True)
class Job:
    """One attempt of one run.

    `command` is what each rank runs, after the Python interpreter: ("-m", "training.trainers.sft",
    "<spec.json>"). With several ranks start it through `python -m training.cluster.torchrun
    <torchrun options> <command>`, which takes the options of torchrun and exits with the code of
    the first rank that failed (torchrun itself always exits with 1); a single rank may be started
    directly.
    """

    key: str  # unique per run, stage and attempt, e.g. "dsm-<run>-sft-<attempt>"
    command: tuple[str, ...]
    attempt_dir: Path  # logs, rendered script, handle.json, exit.json
    nodes: int = 1
    processes_per_node: int = 1
    cpus_per_process: int = 1
    gpus_per_node: int = 0
    time_limit_s: int = 24 * 3600
    environment: dict[str, str] = field(default_factory=dict)
    exclude_nodes: tuple[str, ...] = ()
    spares: int = 0  # nodes beside `nodes` that wait for one of them to be lost
    restarts: int = 0  # of the ranks inside the job before it is given up for another
    replace_stragglers: bool = False  # by a spare, when a rank stays slow
    checkpoints: Path | None = None  # where progress shows; None: it cannot be told
    metrics_targets: Path | None = None  # where the agents' addresses are told to Prometheus
    kept_links: Path | None = None  # where measured links are kept for the planner
    # What its nodes check; nothing of their links unless it is asked for.
    health: HealthSettings = field(
        default_factory=lambda: HealthSettings(links=LinkLimits(enabled=False))
    )
    # After which a silent rank counts as hanging.
    sections: SectionLimits = field(default_factory=SectionLimits)


@dataclass(frozen=True)
class JobHandle:
    """Enough to find the job again from another process."""

    key: str
    launcher: str  # local | slurm
    job_id: str  # process group id, or Slurm job id


class JobState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"  # exit 0
    RESUMABLE = "resumable"  # exit 75
    FAILED = "failed"  # other exits
    NEVER_AGAIN = "never_again"  # exit 93
    CANCELLED = "cancelled"
    LOST = "lost"  # node failure, killed by a signal, vanished from the scheduler


TERMINAL = frozenset(JobState) - {JobState.PENDING, JobState.RUNNING}


@dataclass(frozen=True)
class JobStatus:
    """What is known now. `detail` is for people; `nodes` are the scheduler's names."""

    state: JobState
    detail: str = ""
    exit_code: int | None = None
    nodes: tuple[str, ...] = ()
    scheduler_state: str = ""  # the scheduler's own word for an end that it brought about


@dataclass(frozen=True)
class Nodes:
    """A cluster's nodes by the scheduler's names: all of them, those on which it would start a job,
    and of these the free ones."""

    all: frozenset[str]
    up: frozenset[str]
    idle: frozenset[str]


class Launcher(Protocol):
    """Implemented by `training.cluster.local` and `training.cluster.slurm`."""

    def submit(self, job: Job) -> JobHandle:
        """Start `job`, or find it if it was submitted before (same key)."""
        ...

    def poll(self, handle: JobHandle, job: Job) -> JobStatus: ...

    def cancel(self, handle: JobHandle, job: Job) -> None:
        """Ask it to stop (checkpoint, exit 75), then kill what is left."""
        ...

    def nodes(self) -> Nodes | None:
        """The nodes that jobs may get; None when nobody can say."""
        ...
