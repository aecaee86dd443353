"""How a stage that did not come to its end is told: the errors and their texts."""

from __future__ import annotations

import json
from pathlib import Path

from training.cluster.job import Job, JobState, JobStatus
from training.cluster.recovery import Decision, Resubmit, Shrink, Stop
from workspace.errors import DsmError, UserError

LOG_TAIL_LINES = 25


class TrainingFailedError(DsmError):
    """The stage was given up; the message says why and shows the end of the log."""


class TrainingStoppedError(DsmError):
    """Stopped on request; the checkpoint stays, the same command goes on from it."""


def error_of(status: JobStatus, decision: Stop, job: Job, newest_step: int) -> DsmError:
    """What to raise for a stage given up after `job`; `newest_step` is that of its checkpoint."""
    if status.state is JobState.NEVER_AGAIN:
        return UserError(_user_fault(job) or _failure("the trainer refused to go on", status, job))
    if status.state is JobState.CANCELLED:
        return TrainingStoppedError(
            f"{job.key} was cancelled from outside ({status.detail}); newest checkpoint: step "
            f"{newest_step}. The same command goes on from there."
        )
    return TrainingFailedError(_failure(decision.reason, status, job))


def in_words(decision: Decision) -> str:
    """What follows an attempt, for people."""
    if isinstance(decision, Resubmit):
        without = f" without {', '.join(decision.excluding)}" if decision.excluding else ""
        return f"a new job{without}"
    if isinstance(decision, Shrink):
        return f"a new job on {decision.nodes} nodes"
    return f"no other attempt: {decision.reason}"


def stopped_error(what: str, newest_step: int) -> TrainingStoppedError:
    """What to raise when the caller asked to stop `what`."""
    return TrainingStoppedError(
        f"{what} was stopped on request; newest checkpoint: step {newest_step}. "
        "The same command goes on from there."
    )


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
