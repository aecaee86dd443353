"""A scheduler that tests can bend."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_output import JobInfo, NodeInfo
from workspace.errors import TransientError


class Scheduler(SlurmClient):
    """A slurmctld in memory. `lost_answers`: submissions that arrive but are not acknowledged;
    `starts_on_exclude`: nodes on which a job starts just when it is told to leave some out."""

    def __init__(self) -> None:
        super().__init__(sleep=lambda seconds: None)
        self.jobs: dict[str, JobInfo] = {}
        self.history: dict[str, JobInfo] = {}
        self.partition: tuple[str, ...] = ()
        self.down: set[str] = set()
        self.submitted = 0
        self.lost_answers = 0
        self.unreachable = 0
        self.cancelled: list[tuple[str, str | None]] = []
        self.excluded: dict[str, tuple[str, ...]] = {}
        self.starts_on_exclude: tuple[str, ...] = ()

    def submit(self, script: Path) -> str:
        if self.unreachable:
            self.unreachable -= 1
            raise TransientError("sbatch: Unable to contact slurm controller")
        self.submitted += 1
        spec = json.loads((script.parent / "job.json").read_text())
        job_id = str(100 + self.submitted)
        self.jobs[job_id] = JobInfo(
            job_id, "PENDING", str(spec["key"]), str(script.parent), "Priority"
        )
        if self.lost_answers:
            self.lost_answers -= 1
            raise TransientError("sbatch: Socket timed out on send/recv operation")
        return job_id

    def job(self, job_id: str) -> JobInfo | None:
        return self.jobs.get(job_id)

    def own_jobs(self, name: str | None = None) -> list[JobInfo]:
        return [job for job in self.jobs.values() if name in (None, job.name)]

    def cancel(self, job_id: str, *, signal: str | None = None, batch_only: bool = False) -> None:
        self.cancelled.append((job_id, signal))
        if signal is None and job_id in self.jobs:
            self.jobs[job_id] = replace(self.jobs[job_id], state="CANCELLED")

    def exclude(self, job_id: str, nodes: Iterable[str]) -> None:
        self.excluded[job_id] = tuple(nodes)
        if self.starts_on_exclude:
            self.set(job_id, state="RUNNING", nodes=self.starts_on_exclude)

    def nodes(self, names: Iterable[str] = (), *, partition: str = "") -> list[NodeInfo]:
        listed = tuple(names) or self.partition
        return [NodeInfo(name, "down" if name in self.down else "idle", True) for name in listed]

    def finished(self, job_id: str, name: str) -> JobInfo | None:
        found = self.history.get(job_id)
        return found if found and found.name == name else None

    def set(self, job_id: str, **changes: object) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], **changes)  # type: ignore[arg-type]
