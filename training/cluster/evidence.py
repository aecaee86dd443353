"""Why something ended, told from what it left: exit codes, last words, the scheduler's state.

In: ranks' exits as the node agents report them, a job's last `JobStatus`, the job's own events.
Out: a `Cause` and the nodes under suspicion, as `training.cluster.recovery` wants them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from training.cluster.job import (
    EXIT_DONE,
    EXIT_NEVER_AGAIN,
    EXIT_RESUME,
    JobState,
    JobStatus,
)
from training.cluster.recovery import Cause, Ending
from training.run_events import EVENTS_NAME, RunEvent, read_events
from workspace import publish

_HISTORY_NAME = "history.json"
ENDED = "ended"  # the event that closes a generation; its facts are an `Ending`

_STORAGE = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Errno (5|28|30|116|122)\b"
    r"|Input/output error|Stale file handle",
    re.IGNORECASE,
)
_HARDWARE = re.compile(
    r"uncorrectable|\bECC\b|\bXid\b|fallen off the bus|NVLink|unspecified launch failure"
    r"|GPU is lost|hardware error|CUDA_ERROR_(ECC|HARDWARE)|no CUDA-capable device",
    re.IGNORECASE,
)
_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryError|Cannot allocate memory", re.IGNORECASE)
# What a rank says when another one left it alone in a collective operation.
_SECONDARY = re.compile(
    r"(Connection|connection) (closed|reset|refused)|Broken pipe|\bEOFError\b|DistBackendError"
    r"|DistStoreError|DistNetworkError|gloo|NCCL|Socket Timeout|remote process exited|watchdog",
)
_BY_STATE = {
    "NODE_FAIL": Cause.NODE_LOST,
    "BOOT_FAIL": Cause.NODE_LOST,
    "LAUNCH_FAILED": Cause.NODE_LOST,
    "RECONFIG_FAIL": Cause.NODE_LOST,
    "TIMEOUT": Cause.TIME_LIMIT,
    "DEADLINE": Cause.TIME_LIMIT,
    "PREEMPTED": Cause.PREEMPTED,
    "REVOKED": Cause.PREEMPTED,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
}


class RankExit(NamedTuple):
    """How a rank ended. `code` is 128 + signal for a killed one; `ended` in epoch seconds."""

    rank: int
    node: str
    code: int
    error: str
    ended: float


def cause_of_exit(code: int, error: str) -> Cause:
    """From a rank's exit code and last words."""
    known = {
        EXIT_DONE: Cause.DONE,
        EXIT_RESUME: Cause.STOPPED,
        EXIT_NEVER_AGAIN: Cause.USER_FAULT,
    }
    if code in known:
        return known[code]
    for pattern, cause in (
        (_STORAGE, Cause.STORAGE),
        (_HARDWARE, Cause.HARDWARE),
        (_MEMORY, Cause.OUT_OF_MEMORY),
    ):
        if pattern.search(error):
            return cause
    return Cause.RANK_KILLED if code > 128 else Cause.RANK_FAILED


def root_exit(exits: Sequence[RankExit]) -> RankExit:
    """The exit that brought the others about: what the input is at fault for, then a death of its
    own, then the first. A rank that merely lost its peer is never the one if there is another."""

    def order(one: RankExit) -> tuple[int, float]:
        if one.code == EXIT_NEVER_AGAIN:
            return 0, one.ended
        if one.code == EXIT_RESUME:
            return 3, one.ended
        return (2 if _SECONDARY.search(one.error) else 1), one.ended

    return min((one for one in exits if one.code), key=order)


def ending_facts(ending: Ending) -> dict[str, Any]:
    """An ending as the facts of an event."""
    return asdict(ending)


def endings_of(events: Sequence[RunEvent]) -> list[Ending]:
    """The endings that a job reported."""
    return [read_ending(event.facts) for event in events if event.event == ENDED]


def read_ending(facts: Any) -> Ending:
    """The ending that `ending_facts` wrote."""
    return Ending(
        **{
            **facts,
            "cause": Cause(facts["cause"]),
            "nodes": tuple(facts["nodes"]),
            "suspects": tuple(facts["suspects"]),
        }
    )


def write_history(attempt_dir: Path, history: Sequence[Ending]) -> None:
    """Tell an attempt's job what went before it."""
    if history:
        publish.write_json(attempt_dir / _HISTORY_NAME, [ending_facts(one) for one in history])


def read_history(attempt_dir: Path) -> list[Ending]:
    """What went before the attempt's job; nothing where nobody wrote it down."""
    try:
        text = (attempt_dir / _HISTORY_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [read_ending(facts) for facts in json.loads(text)]


def job_endings(
    status: JobStatus,
    reported: Sequence[Ending],
    *,
    attempt: int,
    generation: int,
    nodes: tuple[str, ...],
    from_step: int,
    newest_step: int,
) -> list[Ending]:
    """All endings of an attempt whose job is over: the `reported` ones, the last as the scheduler
    knows it better, or one more for a generation that was cut off.

    `generation` is the last one that was started, `from_step` the checkpoint before the attempt.
    """
    cause = _cause_of_job(status)
    if reported and reported[-1].generation >= generation:
        last = replace(reported[-1], newest_step=newest_step)
        if cause is Cause.CANCELLED:
            last = replace(last, cause=cause)
        elif status.nodes:
            last = replace(last, cause=Cause.NODE_LOST, suspects=status.nodes)
        return [*reported[:-1], last]
    error = "" if cause is Cause.STOPPED else status.detail
    since = reported[-1].newest_step if reported else from_step
    last = Ending(attempt, generation, cause, nodes, status.nodes, error, since, newest_step)
    return [*reported, last]


def attempt_endings(
    attempt_dir: Path, status: JobStatus, *, attempt: int, from_step: int, newest_step: int
) -> list[Ending]:
    """`job_endings`, with what the job itself reported in its folder."""
    events = read_events(attempt_dir / EVENTS_NAME)
    started = [event for event in events if event.event == "started"]
    endings = job_endings(
        status,
        endings_of(events),
        attempt=attempt,
        generation=max((event.generation for event in started), default=1),
        nodes=started[-1].nodes if started else status.nodes,
        from_step=from_step,
        newest_step=newest_step,
    )
    return [replace(ending, ended=ending.ended or time.time()) for ending in endings]


def _cause_of_job(status: JobStatus) -> Cause:
    by_state = {
        JobState.RESUMABLE: Cause.STOPPED,
        JobState.NEVER_AGAIN: Cause.USER_FAULT,
        JobState.CANCELLED: Cause.CANCELLED,
        # Reported as a success, but without the stage's result.
        JobState.SUCCEEDED: Cause.RANK_FAILED,
    }
    if status.state in by_state:
        return by_state[status.state]
    if status.nodes:
        return Cause.NODE_LOST
    if status.scheduler_state in _BY_STATE:
        return _BY_STATE[status.scheduler_state]
    if status.exit_code is not None:
        return cause_of_exit(status.exit_code, status.detail)
    return Cause.LOST if status.state is JobState.LOST else Cause.RANK_FAILED
