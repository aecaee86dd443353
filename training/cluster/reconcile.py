"""Compare the runs of a workspace with the jobs that exist, and end jobs that nobody wants.

    for finding in reconcile(Workspace(folder)):
        print(finding.describe())

In: `runs/<run>/<stage>/attempts/<n>/` of every run that is not published, and Slurm or the local
processes. Out: one finding for each attempt that is open (no `outcome.json`), and for each job of
a closed attempt that is still alive. Two things are done, the rest is only reported: the job of an
attempt whose cancellation was requested (`request_cancel`) is cancelled and the attempt closed, and
a job that outlived its attempt, or waits for one that is not to come, is cancelled. A run that has
a living supervisor is left to it.

Safe to run at any time, also twice at once. Not covered: runs of other workspaces, jobs that were
not started by a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, get_args

from training.attempt_history import OUTCOME_NAME, Times, write_outcome
from training.attempt_log import AttemptLog
from training.checkpoints import newest_step
from training.cluster.evidence import attempt_endings
from training.cluster.job import (
    CANCEL_FILE,
    TERMINAL,
    Job,
    JobHandle,
    JobState,
    JobStatus,
    Launcher,
)
from training.cluster.local import LocalLauncher
from training.cluster.recovery import Stop, describe
from training.cluster.render import SPEC_NAME
from training.cluster.slurm import SlurmLauncher, read_handle
from training.cluster.successor import Verdict, attempt_folder, refusal, scene_of
from training.cluster.successor_queue import SuccessorQueue
from training.run_events import EVENTS_NAME
from training.run_record import RUN_FILE, RunFolder, StageFolder
from training.trainers.settings import StageName
from workspace.errors import MissingToolError, TransientError, UserError, WorkspaceBusyError
from workspace.locking import stage_lock
from workspace.manifest import read_manifest
from workspace.paths import Workspace


class Situation(StrEnum):
    """What an attempt's files and its job say together."""

    WATCHED = "watched"  # a supervisor looks after it
    UNATTENDED = "unattended"  # the job is alive, its supervisor is not
    ENDED = "ended"  # the job is over and nobody took note
    VANISHED = "vanished"  # the job is gone without a trace, or was lost
    CANCELLED = "cancelled"  # cancelled now, as requested
    STRAY = "stray"  # outlived its attempt; cancelled now
    NOT_SUBMITTED = "not_submitted"  # prepared, but there is no job
    UNKNOWN = "unknown"  # the scheduler does not answer


_ADVICE = {
    Situation.WATCHED: "",
    Situation.UNATTENDED: "start the run again to watch it",
    Situation.ENDED: "start the run again to go on from there",
    Situation.VANISHED: "start the run again to go on from its last checkpoint",
    Situation.CANCELLED: "start the run again when it should go on",
    Situation.STRAY: "",
    Situation.NOT_SUBMITTED: "start the run again",
    Situation.UNKNOWN: "look again later",
}


@dataclass(frozen=True)
class Finding:
    """One attempt. `state` is None where nobody could say; `job_id` "" where there is no job."""

    run: str
    stage: StageName
    attempt: int
    situation: Situation
    state: JobState | None = None
    launcher: str = ""
    job_id: str = ""
    detail: str = ""

    @property
    def needs_attention(self) -> bool:
        """Whether a person or a new supervisor should act."""
        return bool(_ADVICE[self.situation])

    def describe(self) -> str:
        """For example `dsm-1 sft attempt 2 (slurm job 17): unattended, running; start ...`."""
        job = f" ({self.launcher} job {self.job_id})" if self.job_id else ""
        said = ", ".join(filter(None, (self.situation, self.state, self.detail)))
        advice = _ADVICE[self.situation]
        return f"{self.run} {self.stage} attempt {self.attempt}{job}: {said}" + (
            f"; {advice}" if advice else ""
        )


@dataclass(frozen=True)
class Launchers:
    """The launchers that a handle may name."""

    local: LocalLauncher = field(default_factory=LocalLauncher)
    slurm: SlurmLauncher = field(default_factory=SlurmLauncher)

    def of(self, handle: JobHandle) -> Launcher:
        return self.slurm if handle.launcher == self.slurm.name else self.local

    @cached_property
    def successors(self) -> SuccessorQueue:
        return SuccessorQueue(self.slurm)

    @cached_property
    def live_slurm_jobs(self) -> frozenset[str]:
        """Asked once; empty where Slurm is not installed or does not answer."""
        try:
            return self.slurm.live_jobs()
        except (MissingToolError, TransientError):
            return frozenset()


class Attempt(NamedTuple):
    """An attempt's folder and its place."""

    run: str
    stage: StageName
    number: int
    folder: Path

    @property
    def following(self) -> Path:
        """The folder of the attempt after it."""
        return self.folder.parent / str(self.number + 1)

    @property
    def run_events(self) -> Path:
        return self.folder.parents[2] / EVENTS_NAME

    @property
    def is_open(self) -> bool:
        return not (self.folder / OUTCOME_NAME).exists()

    def finding(
        self,
        situation: Situation,
        status: JobStatus | None = None,
        handle: JobHandle | None = None,
        detail: str = "",
    ) -> Finding:
        return Finding(
            self.run,
            self.stage,
            self.number,
            situation,
            status.state if status else None,
            handle.launcher if handle else "",
            handle.job_id if handle else "",
            detail or (status.detail if status else ""),
        )


def reconcile(workspace: Workspace, launchers: Launchers | None = None) -> list[Finding]:
    """Findings by run, stage and attempt. Cancels what the module's text says, nothing else."""
    known = launchers or Launchers()
    findings: list[Finding] = []
    for run in unpublished_runs(workspace):
        try:
            with stage_lock(workspace, f"run-{run.name}"):
                findings += [_examine(attempt, known) for attempt in _open_attempts(run)]
                findings += _end_strays(run, known)
                findings += _end_successors(run, known)
        except WorkspaceBusyError:
            findings += [_watched(attempt) for attempt in _open_attempts(run)]
    return findings


def request_cancel(workspace: Workspace, run: str) -> list[int]:
    """Have the next `reconcile` end the jobs of `run`'s open attempts; returns their numbers.

    For a caller that cannot wait for the job itself. Later attempts are not affected. Raises
    `UserError` when there is no such run.
    """
    folder = RunFolder(workspace.run(run))
    if folder.read_record() is None:
        raise UserError(f"there is no run {run!r} in {workspace.runs}")
    attempts = list(_open_attempts(folder))
    for attempt in attempts:
        (attempt.folder / CANCEL_FILE).touch()
    return [attempt.number for attempt in attempts]


def unpublished_runs(workspace: Workspace) -> Iterator[RunFolder]:
    """Runs that were started and have no result yet."""
    for record in sorted(workspace.runs.glob(f"*/{RUN_FILE}")):
        run = RunFolder(record.parent)
        if read_manifest(run.final) is None:
            yield run


def _attempts(run: RunFolder) -> Iterator[Attempt]:
    for name in get_args(StageName):
        stage = StageFolder(run.root / name, name)
        numbers = sorted(int(p.name) for p in stage.attempts.glob("*") if p.name.isdigit())
        for number in numbers:
            yield Attempt(run.name, name, number, stage.attempt(number).resolve())


def _open_attempts(run: RunFolder) -> Iterator[Attempt]:
    return (attempt for attempt in _attempts(run) if attempt.is_open)


def _watched(attempt: Attempt) -> Finding:
    return attempt.finding(Situation.WATCHED, handle=read_handle(attempt.folder))


def _examine(attempt: Attempt, launchers: Launchers) -> Finding:
    """An open attempt of a run that has no supervisor."""
    handle = None
    try:
        handle = _find_handle(attempt, launchers)
        if handle is None:
            if (attempt.folder / CANCEL_FILE).exists():
                never = JobStatus(JobState.CANCELLED, "it was never submitted")
                _close(attempt, never)
                return attempt.finding(Situation.CANCELLED, never)
            return attempt.finding(Situation.NOT_SUBMITTED)
        job = _job(attempt, handle.key)
        launcher = launchers.of(handle)
        status = launcher.poll(handle, job)
        if (attempt.folder / CANCEL_FILE).exists():
            return _cancel(attempt, handle, status, launchers)
        if status.state is JobState.LOST:
            return attempt.finding(Situation.VANISHED, status, handle)
        if status.state in TERMINAL:
            return attempt.finding(Situation.ENDED, status, handle)
        return attempt.finding(Situation.UNATTENDED, status, handle)
    except (TransientError, MissingToolError) as error:
        return attempt.finding(Situation.UNKNOWN, handle=handle, detail=str(error))


def _cancel(
    attempt: Attempt, handle: JobHandle, status: JobStatus, launchers: Launchers
) -> Finding:
    """End the job, and the one that waits behind it; a job that is over closes the attempt, so that
    the next round has nothing to say of it."""
    launcher, job = launchers.of(handle), _job(attempt, handle.key)
    if launcher is launchers.slurm:
        # First what waits: this job's end would start it.
        launchers.successors.withdraw(attempt.following)
    if status.state not in TERMINAL:
        launcher.cancel(handle, job)
        status = launcher.poll(handle, job)
    if status.state in TERMINAL:
        _close(attempt, status, handle)
    return attempt.finding(Situation.CANCELLED, status, handle)


def _close(attempt: Attempt, status: JobStatus, handle: JobHandle | None = None) -> None:
    """Take note of the end, as the supervisor would have."""
    newest = newest_step(attempt.folder.parent.parent / "checkpoints")
    log = AttemptLog(attempt.run_events, attempt.stage, attempt.number, attempt.folder)
    log.copy()
    submission = log.submission()
    endings = attempt_endings(
        attempt.folder,
        status,
        attempt=attempt.number,
        from_step=int(submission.facts["from_step"]) if submission else newest,
        newest_step=newest,
    )
    now = time.time()
    last, decision = endings[-1], Stop("stopped on request")
    log.say(
        "attempt_ended",
        f"{describe(last)}; newest checkpoint: step {newest}",
        generation=last.generation,
        facts={"cause": last.cause, "seconds": round(now - (log.started or now), 3)},
    )
    log.say("decided", f"no other attempt: {decision.reason}, through reconcile")
    submitted = submission.time if submission else now
    write_outcome(attempt.folder, status, endings, decision, Times(submitted, log.started, now))


def _find_handle(attempt: Attempt, launchers: Launchers) -> JobHandle | None:
    """The handle on disk, or that of a job whose submitter died before it wrote one."""
    handle = read_handle(attempt.folder)
    if handle is not None:
        return handle
    try:
        spec = json.loads((attempt.folder / SPEC_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if "slurm" not in spec:
        return None
    job_id = launchers.slurm.find(_job(attempt, spec["key"]))
    return JobHandle(spec["key"], launchers.slurm.name, job_id) if job_id else None


def _job(attempt: Attempt, key: str) -> Job:
    """What polling and cancelling need of a job: its key and its folder."""
    return Job(key=key, command=(), attempt_dir=attempt.folder)


def _end_strays(run: RunFolder, launchers: Launchers) -> list[Finding]:
    """Cancel jobs of closed attempts: their checkpoints are fenced off, they only hold nodes."""
    strays = []
    for attempt in _attempts(run):
        handle = None if attempt.is_open else read_handle(attempt.folder)
        if handle is None or handle.launcher != launchers.slurm.name:
            continue
        if handle.job_id not in launchers.live_slurm_jobs:
            continue
        job = _job(attempt, handle.key)
        status = launchers.slurm.poll(handle, job)
        if status.state not in TERMINAL:
            launchers.slurm.cancel(handle, job)
            strays.append(attempt.finding(Situation.STRAY, status, handle))
    return strays


def _end_successors(run: RunFolder, launchers: Launchers) -> list[Finding]:
    """Cancel jobs that wait for an attempt which is not to come."""
    found = []
    for name in get_args(StageName):
        stage = StageFolder(run.root / name, name)
        for folder in sorted(stage.successors.glob("[0-9]*")):
            handle = read_handle(folder)
            if handle is None or handle.job_id not in launchers.live_slurm_jobs:
                continue
            scene = scene_of(folder, handle.job_id)
            why = refusal(scene)
            if not why or scene.verdict in (Verdict.TAKEN, Verdict.ALONE):
                continue  # wanted, or it is an attempt's job by now
            target = attempt_folder(folder)
            launchers.successors.withdraw(target)
            attempt = Attempt(run.name, name, int(folder.name), target)
            detail = f"waited in the queue to become it, but {why}"
            found.append(attempt.finding(Situation.STRAY, handle=handle, detail=detail))
    return found
