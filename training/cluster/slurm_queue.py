"""This user's jobs as Slurm last listed them: one squeue for all who watch a job of theirs.

    queue = SharedQueue(client.own_jobs, workspace.slurm_queue(queue_name()))
    info = queue.job("4711", max_age_s=pace.max_age_s(signs))

The listing lies in a small file of the workspace, written under a lock: supervisors of several
runs, in one process or in many, and the jobs' coordinators on their nodes take each other's. Asked
is as often as the most curious of them wants. `Pace` says how old a look may be: the longer nothing
has changed, the older, up to `LONGEST_S`, which makes three requests a minute. What shows on disk
(a job's start, its end, its events) is looked at by the callers as often as they like, and makes
the next look a short one.

A controller that is silent is asked again after as long a pause. Not covered: clocks that differ by
more than a second between the machines that share the file; these ask for themselves.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from training.cluster.slurm_output import ExitStatus, JobInfo
from workspace import publish
from workspace.errors import TransientError, WorkspaceBusyError
from workspace.locking import file_lock

QUEUE_VARIABLE = "DSM_SLURM_QUEUE"  # in a job's environment: the file that its coordinator shares

SHORTEST_S = 3.0
LONGEST_S = 20.0
# A look may be a quarter as old as the last change: after 12 s of quiet 3 s, after 80 s 20 s.
_SHARE = 4.0
_SKEW_S = 1.0
_PATIENCE_S = 5.0  # with somebody else who asks just now

_log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """Jobs by id, as they were at `at` (epoch seconds, before Slurm was asked)."""

    at: float
    jobs: dict[str, JobInfo]


class Pace:
    """How old a look at one job may be. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._signs: Hashable = None
        self._changed = clock()

    def max_age_s(self, signs: Hashable) -> float:
        """`signs`: all that is known of the job without asking; 0 when they are new."""
        now = self._clock()
        if signs != self._signs:
            self._signs, self._changed = signs, now
            return 0.0
        return min(LONGEST_S, max(SHORTEST_S, (now - self._changed) / _SHARE))


class SharedQueue:
    """`ask` lists this user's jobs; `path` is shared with others who watch (None: with nobody)."""

    def __init__(
        self,
        ask: Callable[[], list[JobInfo]],
        path: Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._path = path
        self._clock = clock
        self._held = Listing(0.0, {})
        self._silence: TransientError | None = None
        self._ask_at = 0.0  # not before, because of the silence
        self._pause_s = SHORTEST_S

    def job(self, job_id: str, max_age_s: float) -> JobInfo | None:
        """The job as it was at most `max_age_s` ago; None when Slurm has forgotten it.

        Raises `TransientError` while the controller is silent.
        """
        asked = self._clock()
        found = self._listing(max_age_s).jobs.get(job_id)
        if found is None and self._held.at < asked:
            # Submitted since: absence is believed of a new listing alone.
            found = self._listing(0.0).jobs.get(job_id)
        return found

    def _listing(self, max_age_s: float) -> Listing:
        oldest = self._clock() - max_age_s
        if self._fresh(oldest):
            return self._held
        if self._silence is not None and self._clock() < self._ask_at:
            raise self._silence
        with ExitStack() as held:
            self._lock(held)
            if not self._fresh(oldest):  # somebody may have asked while we waited
                self._held = self._asked()
                self._write()
        return self._held

    def _fresh(self, oldest: float) -> bool:
        """Whether what is held, or else the file, is no older; it is held afterwards."""
        latest = self._clock() + _SKEW_S
        if oldest <= self._held.at <= latest:
            return True
        there = self._read()
        if there is None or not oldest <= there.at <= latest:
            return False
        self._held = there
        return True

    def _asked(self) -> Listing:
        now = self._clock()
        try:
            jobs = self._ask()
        except TransientError as error:
            self._silence = error
            self._ask_at = self._clock() + self._pause_s
            self._pause_s = min(LONGEST_S, 2 * self._pause_s)
            raise
        self._silence, self._pause_s = None, SHORTEST_S
        return Listing(now, {job.job_id: job for job in jobs})

    def _lock(self, held: ExitStack) -> None:
        if self._path is None:
            return
        lock = file_lock(self._path.with_suffix(".lock"), "the queue", wait_s=_PATIENCE_S)
        try:
            held.enter_context(lock)
        except (WorkspaceBusyError, OSError) as error:
            _log.warning("Slurm is asked without the others: %s", error)

    def _read(self) -> Listing | None:
        if self._path is None:
            return None
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError:
            return None
        try:
            values = json.loads(text)
            jobs = [_job(row) for row in values["jobs"]]
            return Listing(float(values["at"]), {job.job_id: job for job in jobs})
        except (ValueError, KeyError, TypeError):
            return None  # of another version: the next writer replaces it

    def _write(self) -> None:
        if self._path is None:
            return
        values = {"at": self._held.at, "jobs": [asdict(job) for job in self._held.jobs.values()]}
        try:
            publish.write_text(self._path, json.dumps(values) + "\n")
        except OSError as error:
            _log.warning("the others must ask Slurm themselves: %s", error)


def queue_name() -> str:
    """Tells apart users and clusters that share a workspace."""
    cluster = (os.environ.get("SLURM_CONF", ""), os.environ.get("SLURM_CLUSTERS", ""))
    return f"{os.getuid()}-{hashlib.sha256(repr(cluster).encode()).hexdigest()[:8]}"


def _job(row: dict[str, Any]) -> JobInfo:
    """The inverse of `asdict`."""
    return JobInfo(**{**row, "nodes": tuple(row["nodes"]), "exit": ExitStatus(*row["exit"])})
