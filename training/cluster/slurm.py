"""The Slurm launcher: one attempt of a run is one batch job.

In: a `Job` (and the site's `SlurmOptions`). Out: `job.sbatch`, `job.json`, `handle.json`, and from
the job itself `nodes.txt`, `job.log`, `logs/`, `events.jsonl`, `exit.json` in the attempt's folder.

    launcher = SlurmLauncher(SlurmOptions(partition="gpu"))
    handle = launcher.submit(job)
    status = launcher.poll(handle, job)

`submit` looks for the job's key before it submits, so a caller that died in between gets the same
job again. `poll` costs one read while the outcome is on disk, else one squeue: for this
job, or with a `SharedQueue` for all of the user's, the more seldom the longer nothing happens.

A node failure that no spare of the job could make up for ends the attempt as LOST, with the nodes
that Slurm itself calls lost in `JobStatus.nodes`; whom the job merely suspects, its events say. The
supervisor submits the next attempt without them, in a new folder, which the checkpoint fence tells
apart from ranks that the dead node left running.

Not covered: job arrays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from training.cluster.job import (
    EXIT_DONE,
    EXIT_NEVER_AGAIN,
    EXIT_RESUME,
    FIRST_FAILURE_NAME,
    Job,
    JobHandle,
    JobState,
    JobStatus,
    Nodes,
)
from training.cluster.local import EXIT_NAME, HANDLE_NAME
from training.cluster.recovery import Cause
from training.cluster.render import (
    NODES_NAME,
    STARTED_NAME,
    check_version,
    write_script,
)
from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_options import SlurmOptions
from training.cluster.slurm_output import JobInfo
from training.cluster.slurm_queue import SHORTEST_S, Pace, SharedQueue
from training.cluster.successor import successor_folder
from training.run_events import EVENTS_NAME
from workspace import publish
from workspace.errors import CorruptWorkspaceError, TransientError, UserError

__all__ = ["SlurmLauncher", "SlurmOptions", "read_handle"]

_CONTRACT = {
    EXIT_DONE: JobState.SUCCEEDED,
    EXIT_RESUME: JobState.RESUMABLE,
    EXIT_NEVER_AGAIN: JobState.NEVER_AGAIN,
}
# squeue shows a job's base state, or a flag in its place (slurm.schedmd.com/job_state_codes.html).
WAITING = frozenset(
    {
        "PENDING", "CONFIGURING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
        "RESV_DEL_HOLD", "SPECIAL_EXIT",
    }
)  # fmt: skip
_WHY_LOST = {
    "NODE_FAIL": "a node failed",
    "TIMEOUT": "the time limit was reached before the ranks had stopped",
    "OUT_OF_MEMORY": "out of memory",
    "PREEMPTED": "preempted by another job",
    "BOOT_FAIL": "a node did not boot",
    "DEADLINE": "the job's deadline passed",
    "REVOKED": "revoked by the scheduler",
    "LAUNCH_FAILED": "the node could not start it",
    "RECONFIG_FAIL": "a node could not be configured",
}
# Any other word, one of a newer release included, is of a job that goes on.
OVER = frozenset({"COMPLETED", "FAILED", "CANCELLED", *_WHY_LOST})
_OF_NODES = frozenset({Cause.NODE_LOST, Cause.NODE_SILENT, Cause.UNFIT, Cause.NOT_STARTED})
_SUBMIT_TRIES = 4


class _RecordedExit(NamedTuple):
    """What the batch script wrote at its end. `terminated`: it was sent SIGTERM before."""

    code: int
    job_id: str
    terminated: bool

    @property
    def settles(self) -> bool:
        """Whether it says all; else the scheduler knows who ended the job, and why."""
        return self.code in _CONTRACT and not self.terminated


class _Failure(NamedTuple):
    """In words; `cause` and `nodes` where it was no rank that failed."""

    detail: str
    cause: Cause | None = None
    nodes: tuple[str, ...] = ()


class SlurmLauncher:
    """Implements `training.cluster.job.Launcher`. `queue` None: each look asks Slurm anew."""

    name = "slurm"

    def __init__(
        self,
        options: SlurmOptions | None = None,
        client: SlurmClient | None = None,
        *,
        queue: SharedQueue | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options or SlurmOptions()
        self.client = client or SlurmClient()
        self._queue = queue
        self._clock = clock
        self._paces: dict[str, Pace] = {}
        self._seen: dict[str, JobInfo | None] = {}
        self._sleep = sleep

    def dry_run(self, job: Job) -> Path:
        """Write the script and the resolved spec, submit nothing; returns the script's path."""
        return write_script(job, self.options)

    def submit(self, job: Job) -> JobHandle:
        """Submit `job`, or find it if its key was submitted before.

        Raises `TransientError` when the controller stays silent, `UserError` when it refuses.
        """
        known = read_handle(job.attempt_dir)
        if known is not None:
            if known.launcher != self.name:
                raise UserError(
                    f"{job.attempt_dir} was started by the {known.launcher} launcher: go on with "
                    "that one until this attempt has ended"
                )
            return known
        if self.options.segment:
            check_version(self.options, self.client.version())
        return self.submit_script(job, write_script(job, self.options))

    def submit_script(self, job: Job, script: Path) -> JobHandle:
        """Submit `script`, unless `job` is found; leaves the handle in `job.attempt_dir`."""
        job_id = self.find(job) or self._submit(job, script)
        handle = JobHandle(key=job.key, launcher=self.name, job_id=job_id)
        publish.write_json(job.attempt_dir / HANDLE_NAME, asdict(handle))
        return handle

    def poll(self, handle: JobHandle, job: Job) -> JobStatus:
        """What is known of the job now. Raises `TransientError` when nobody can say."""
        recorded = _read_exit(job.attempt_dir, handle.job_id)
        if recorded is not None and recorded.settles:
            return self._ended(recorded.code, job)
        info = self._look_up(handle, job, self._max_age_s(handle, job))
        if info is None:
            if recorded is not None:
                return self._ended(recorded.code, job)
            return JobStatus(
                JobState.LOST, f"Slurm does not know job {handle.job_id} and it left no exit.json"
            )
        return self._status(info, recorded, job)

    def cancel(self, handle: JobHandle, job: Job) -> None:
        """Ask a running job to save and stop, wait `cancel_grace_s`, then end it."""

        def over() -> bool:
            return not self._alive(handle, job)

        def recorded() -> bool:
            return _read_exit(job.attempt_dir, handle.job_id) is not None

        info = self._look_up(handle, job)
        # What comes now is new: the next look is a short one.
        self._paces.pop(handle.job_id, None)
        if info is not None and info.state == "RUNNING":
            # To the batch script, which leaves the stop file where rank 0 sees it at once.
            self.client.cancel(handle.job_id, signal="USR2", batch_only=True)
            self._wait(lambda: recorded() or over(), self.options.cancel_grace_s)
        if not recorded() and not over():
            self.client.cancel(handle.job_id)
            self._wait(over, 60.0)

    def nodes(self) -> Nodes | None:
        """The partition's nodes."""
        try:
            listed = self.client.nodes(partition=self.options.partition)
        except (TransientError, UserError):
            return None
        return Nodes(
            frozenset(node.name for node in listed),
            frozenset(node.name for node in listed if node.usable),
            frozenset(node.name for node in listed if node.usable and node.state == "idle"),
        )

    def find(self, job: Job) -> str | None:
        """The id of a job with this key that Slurm remembers, or that left its record here."""
        own = self.client.own_jobs(job.key)
        found = [info.job_id for info in own if _lies_in(info, job.attempt_dir)]
        if found:
            return max(found, key=int)
        recorded = _read_exit(job.attempt_dir)
        return recorded.job_id if recorded else None

    def live_jobs(self) -> frozenset[str]:
        """Ids of this user's jobs that wait or run, in one call."""
        jobs = self.client.own_jobs()
        return frozenset(info.job_id for info in jobs if info.state not in OVER)

    def _submit(self, job: Job, script: Path) -> str:
        for attempt in range(_SUBMIT_TRIES):
            try:
                return self.client.submit(script)
            except TransientError:
                if attempt == _SUBMIT_TRIES - 1:
                    raise
                self._sleep(2.0**attempt)
                # The answer may have been lost on the way back, not the request.
                found = self.find(job)
                if found is not None:
                    return found
        raise AssertionError("unreachable")

    def _max_age_s(self, handle: JobHandle, job: Job) -> float:
        """Of a look at the queue: 0 when Slurm's last word or the attempt's folder is new."""
        pace = self._paces.setdefault(handle.job_id, Pace(self._clock))
        names = (STARTED_NAME, EXIT_NAME, EVENTS_NAME)
        return pace.max_age_s(
            (self._seen.get(handle.job_id), *(_stamp(job.attempt_dir / name) for name in names))
        )

    def _job(self, job_id: str, max_age_s: float) -> JobInfo | None:
        if self._queue is None:
            return self.client.job(job_id)
        self._seen[job_id] = info = self._queue.job(job_id, max_age_s)
        return info

    def _look_up(self, handle: JobHandle, job: Job, max_age_s: float = 0.0) -> JobInfo | None:
        info = self._job(handle.job_id, max_age_s)
        if info is not None and _is_ours(info, job):
            return info
        return self.client.finished(handle.job_id, handle.key)

    def _alive(self, handle: JobHandle, job: Job) -> bool:
        info = self._job(handle.job_id, SHORTEST_S)
        return info is not None and _is_ours(info, job) and info.state not in OVER

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        waited = 0.0
        while waited < seconds and not condition():
            self._sleep(0.5)
            waited += 0.5

    def _status(self, info: JobInfo, recorded: _RecordedExit | None, job: Job) -> JobStatus:
        if info.state in WAITING:
            return self._waiting(info, job)
        if info.state not in OVER:
            # Who killed it (a user, the time limit, a node) is known when the job has ended.
            if recorded is None or recorded.terminated or recorded.code > 128:
                return JobStatus(JobState.RUNNING, _where(info), nodes=info.nodes)
            return self._ended(recorded.code, job)
        if info.state == "CANCELLED":
            if self._failed_before_its_start(info, job):
                return self._lost(f"job {info.job_id} could not begin", job, info)
            return JobStatus(JobState.CANCELLED, f"job {info.job_id} was cancelled in Slurm")
        if recorded is not None and recorded.code in _CONTRACT:
            return self._ended(recorded.code, job)
        if info.state in _WHY_LOST:
            return self._lost(f"job {info.job_id}: {_WHY_LOST[info.state]}", job, info)
        if info.exit.signal:
            return self._lost(f"the batch script died of signal {info.exit.signal}", job, info)
        code = recorded.code if recorded else info.exit.code
        return self._ended(code, job)

    def _failed_before_its_start(self, info: JobInfo, job: Job) -> bool:
        """Whether it was Slurm that cancelled it: after a failing prolog it drains the node, and
        calls a job that may not be requeued cancelled."""
        began = (job.attempt_dir / STARTED_NAME).exists()
        return not began and bool(self._bad_nodes(info.nodes))

    def _waiting(self, info: JobInfo, job: Job) -> JobStatus:
        if info.restarts == 0:
            return JobStatus(JobState.PENDING, f"job {info.job_id}: {info.reason}".rstrip(": "))
        # Slurm requeued it by itself. A new attempt starts sooner, without the bad node, and
        # behind the checkpoint fence.
        lost = self._lost(f"job {info.job_id} was requeued by Slurm after a failure", job, info)
        self.client.cancel(info.job_id)
        return lost

    def _ended(self, code: int, job: Job) -> JobStatus:
        failure = _first_failure(job.attempt_dir) if code else None
        detail = failure.detail if failure else ""
        if failure and failure.cause in _OF_NODES:
            lost = self._surely_lost(failure, job)
            if lost or failure.cause is not Cause.NOT_STARTED:
                return JobStatus(JobState.LOST, detail, code, lost)
        if code in _CONTRACT:
            return JobStatus(_CONTRACT[code], detail, code)
        if code > 128:
            killed = detail or f"killed by signal {code - 128}"
            return self._lost(killed, job, exit_code=code)
        return JobStatus(JobState.FAILED, detail or f"exit code {code}", code)

    def _lost(
        self, detail: str, job: Job, info: JobInfo | None = None, exit_code: int | None = None
    ) -> JobStatus:
        bad = self._bad_nodes(_read_nodes(job.attempt_dir) or (info.nodes if info else ()))
        if bad:
            detail += f"; not usable: {', '.join(bad)}"
        state = info.state if info and info.state in _WHY_LOST else ""
        return JobStatus(JobState.LOST, detail, exit_code, bad, state)

    def _surely_lost(self, failure: _Failure, job: Job) -> tuple[str, ...]:
        """What the job only suspects may be what Slurm knows by now."""
        if failure.cause is Cause.NODE_LOST:
            return failure.nodes
        return self._bad_nodes(failure.nodes or _read_nodes(job.attempt_dir))

    def _bad_nodes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            return ()
        return tuple(node.name for node in self.client.nodes(names) if not node.usable)


def _where(info: JobInfo) -> str:
    nodes = ", ".join(info.nodes) if len(info.nodes) <= 4 else f"{len(info.nodes)} nodes"
    other = "" if info.state == "RUNNING" else f" ({info.state.lower()})"
    return f"job {info.job_id} on {nodes}{other}" if nodes else f"job {info.job_id}{other}"


def _is_ours(info: JobInfo, job: Job) -> bool:
    """Slurm uses job ids again, and another workspace may have a run of the same name.

    A job that waited as a successor keeps the folder that it waited in.
    """
    places = (job.attempt_dir, successor_folder(job.attempt_dir))
    return info.name == job.key and any(_lies_in(info, place) for place in places)


def _stamp(path: Path) -> tuple[int, int]:
    """Differs when the file was written to."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _lies_in(info: JobInfo, folder: Path) -> bool:
    return Path(info.work_dir).resolve() == folder.resolve()


def read_handle(attempt_dir: Path) -> JobHandle | None:
    """The handle of the job that was submitted for this attempt, if any."""
    path = attempt_dir / HANDLE_NAME
    try:
        return JobHandle(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise CorruptWorkspaceError(f"{path} is not a job handle: {error}") from error


def _read_exit(attempt_dir: Path, job_id: str | None = None) -> _RecordedExit | None:
    path = attempt_dir / EXIT_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        recorded = _RecordedExit(
            int(values["exit_code"]), str(values["job_id"]), bool(values.get("terminated"))
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise CorruptWorkspaceError(f"{path} is not an exit record: {error}") from error
    return recorded if job_id in (None, recorded.job_id) else None


def _read_nodes(attempt_dir: Path) -> tuple[str, ...]:
    try:
        return tuple((attempt_dir / NODES_NAME).read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return ()


def _first_failure(attempt_dir: Path) -> _Failure | None:
    """What the job's coordinator says brought the job to its end."""
    try:
        text = (attempt_dir / FIRST_FAILURE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    record = json.loads(text)
    if record["rank"] < 0:
        return _Failure(record["error"], Cause(record["cause"]), tuple(record["nodes"]))
    code = record["exit_code"]
    how = f"was killed by signal {code - 128}" if code > 128 else f"ended with {code}"
    where = f"rank {record['rank']} on {record['host']}"
    return _Failure(f"{where} {how}: {record['error']}".rstrip(": "))
