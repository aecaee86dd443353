"""Bring one stage of a run to its end, whatever happens to the attempts on the way.

An attempt that was stopped, lost or failed is followed by another one from the newest complete
checkpoint. It gives up after a fault of the user's input (the trainer says so), when somebody
cancelled the job, after three attempts in a row without a newer checkpoint, or after
`max_attempts`. The supervisor may be killed at any moment: started again, it finds the running
attempt through its launcher and goes on watching.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from training import checkpoints
from training.cluster.job import TERMINAL, Job, JobHandle, JobState, JobStatus, Launcher
from training.metrics import MetricsFollower, StepMetrics
from training.run_record import StageFolder
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.errors import DsmError, TransientError, UserError

OUTCOME_NAME = "outcome.json"
MAX_STALLED_ATTEMPTS = 3
LOG_TAIL_LINES = 25


class TrainingFailedError(DsmError):
    """The stage was given up; the message says why and shows the end of the log."""


class TrainingStoppedError(DsmError):
    """Stopped on request; the checkpoint stays, the same command goes on from it."""


@dataclass(frozen=True)
class TrainProgress:
    """What is known while a stage runs."""

    stage: str
    attempt: int
    state: JobState
    detail: str = ""
    step: int = 0
    total_steps: int = 0
    loss: float | None = None
    reward: float | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = None
    new_steps: tuple[StepMetrics, ...] = ()  # since the last call


class Watch(NamedTuple):
    """How the caller takes part."""

    observe: Callable[[TrainProgress], None]
    should_stop: Callable[[], bool]
    poll_interval_s: float


class Budget(NamedTuple):
    """Attempts so far in this call, and in a row without progress."""

    attempts: int = 0
    stalled: int = 0
    newest_step: int = 0

    def after(self, newest_step: int) -> Budget:
        """The budget after an attempt that left `newest_step` as the newest checkpoint."""
        progressed = newest_step > self.newest_step
        return Budget(self.attempts + 1, 0 if progressed else self.stalled + 1, newest_step)


def run_stage(
    folder: StageFolder,
    launcher: Launcher,
    make_job: Callable[[int, tuple[str, ...]], Job],
    watch: Watch,
    *,
    max_attempts: int,
) -> StageOutcome:
    """Attempt after attempt until the stage's result is there.

    `make_job(attempt, exclude_nodes)` writes the attempt's specification and returns its job.
    Raises `UserError`, `TrainingFailedError` or `TrainingStoppedError`.
    """
    budget = Budget(newest_step=_newest_step(folder))
    excluded: tuple[str, ...] = ()
    attempt = max(folder.latest_attempt(), 1)
    while True:
        done = folder.outcome()
        if done is not None:
            return done
        if (folder.attempt(attempt) / OUTCOME_NAME).exists():
            attempt += 1
        if watch.should_stop() and not folder.attempt(attempt).exists():
            raise TrainingStoppedError(_stopped(f"stage {folder.stage}", folder))
        job = make_job(attempt, excluded)
        status = _run_attempt(folder, launcher, job, attempt, watch)
        _record_outcome(folder, job, status)
        if status.state is JobState.SUCCEEDED and folder.outcome() is not None:
            continue
        budget = budget.after(_newest_step(folder))
        _raise_if_over(status, budget, job, max_attempts)
        if status.state is JobState.LOST:
            excluded = tuple(sorted({*excluded, *status.nodes}))


def _raise_if_over(status: JobStatus, budget: Budget, job: Job, max_attempts: int) -> None:
    """Raise when there is no sense in another attempt."""
    if status.state is JobState.NEVER_AGAIN:
        raise UserError(_user_fault(job) or _failure("the trainer refused to go on", status, job))
    if status.state is JobState.CANCELLED:
        raise TrainingStoppedError(
            f"{job.key} was cancelled from outside ({status.detail}); newest checkpoint: step "
            f"{budget.newest_step}. The same command goes on from there."
        )
    if budget.stalled >= MAX_STALLED_ATTEMPTS:
        raise TrainingFailedError(
            _failure(f"{budget.stalled} attempts in a row without a newer checkpoint", status, job)
        )
    if budget.attempts >= max_attempts:
        raise TrainingFailedError(
            _failure(f"{budget.attempts} attempts are used up (max_attempts)", status, job)
        )


def _run_attempt(
    folder: StageFolder, launcher: Launcher, job: Job, attempt: int, watch: Watch
) -> JobStatus:
    handle = launcher.submit(job)
    follower = _Follower(folder.stage, attempt, MetricsFollower(folder.metrics(attempt)))
    try:
        while True:
            status = _poll(launcher, handle, job)
            watch.observe(follower.progress(status))
            if status.state in TERMINAL:
                return status
            if watch.should_stop():
                launcher.cancel(handle, job)
                stopped = _poll(launcher, handle, job)
                watch.observe(follower.progress(stopped))
                # We stopped it: the next call must not take it for cancelled by somebody else.
                if stopped.state in TERMINAL:
                    _record_outcome(folder, job, stopped)
                raise TrainingStoppedError(_stopped(job.key, folder))
            time.sleep(watch.poll_interval_s)
    except KeyboardInterrupt:
        launcher.cancel(handle, job)
        raise


def _record_outcome(folder: StageFolder, job: Job, status: JobStatus) -> None:
    """The attempt is over: the next one gets a new number."""
    publish.write_json(
        job.attempt_dir / OUTCOME_NAME,
        {**asdict(status), "newest_checkpoint": _newest_step(folder)},
    )


def _poll(launcher: Launcher, handle: JobHandle, job: Job) -> JobStatus:
    try:
        return launcher.poll(handle, job)
    except TransientError as error:
        # A scheduler that does not answer says nothing about the job.
        return JobStatus(JobState.RUNNING, f"no news: {error}")


class _Follower:
    """Turns new metric lines into progress."""

    def __init__(self, stage: str, attempt: int, metrics: MetricsFollower) -> None:
        self._stage = stage
        self._attempt = attempt
        self._metrics = metrics
        self._steps = self._tokens = 0
        self._seconds = 0.0
        self._last: StepMetrics | None = None

    def progress(self, status: JobStatus) -> TrainProgress:
        new = self._metrics.new()
        for step in new:
            self._steps += 1
            self._tokens += step.tokens
            self._seconds += step.seconds
            self._last = step
        last = self._last
        if last is None:
            return TrainProgress(self._stage, self._attempt, status.state, status.detail)
        return TrainProgress(
            self._stage,
            self._attempt,
            status.state,
            status.detail,
            step=last.step,
            total_steps=last.total_steps,
            loss=last.loss,
            reward=last.extra.get("reward"),
            tokens_per_s=self._tokens / self._seconds if self._seconds else None,
            eta_s=(last.total_steps - last.step) * self._seconds / self._steps,
            new_steps=tuple(new),
        )


def _stopped(what: str, folder: StageFolder) -> str:
    return (
        f"{what} was stopped on request; newest checkpoint: step {_newest_step(folder)}. "
        "The same command goes on from there."
    )


def _newest_step(folder: StageFolder) -> int:
    newest = checkpoints.newest_complete(folder.checkpoints)
    return newest.step if newest else 0


def _user_fault(job: Job) -> str:
    """What the trainer says that the user should mend; "" when it says nothing."""
    try:
        return str(json.loads((job.attempt_dir / "error.json").read_text("utf-8"))["message"])
    except (OSError, ValueError, KeyError):
        return ""


def _failure(reason: str, status: JobStatus, job: Job) -> str:
    return (
        f"{job.key}: gave up, {reason}; the last attempt ended as {status.state} "
        f"({status.detail or status.exit_code}). Logs: {job.attempt_dir}\n{log_tail(job)}"
    )


def log_tail(job: Job, lines: int = LOG_TAIL_LINES) -> str:
    """The end of the attempt's error log: of the ranks' logs, the one written to last."""
    folder = job.attempt_dir
    logs = (*folder.glob("logs/rank-*"), folder / "stderr.log", folder / "job.log")
    filled = [p for p in logs if p.is_file() and p.stat().st_size]
    if not filled:
        return "(no log was written)"
    newest = max(filled, key=lambda p: (p.stat().st_mtime, p.name))
    return f"--- end of {newest}\n{_tail(newest, lines)}"


def _tail(path: Path, lines: int) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 64 * 1024))
        text = stream.read().decode("utf-8", "replace")
    # Progress bars redraw one line thousands of times.
    shown = [line.rsplit("\r", 1)[-1] for line in text.splitlines()]
    return "\n".join(shown[-lines:])
