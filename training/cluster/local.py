"""Run training jobs on this machine.

A job is a small watcher process in its own session that starts the ranks, waits and writes
`exit.json`; it outlives the supervisor. Everything that is known about a job is in its attempt's
folder:

    handle.json     who runs it                job.lock     held by the watcher while it lives
    exit.json       how it ended               stdout.log   stderr.log

Whether a job lives is asked of the lock, not of a process number: the kernel drops the lock with
its holder, so neither a crash nor a reused number can deceive. Ranks that outlive a killed watcher
are found by the attempt's folder in their environment and are killed before the job counts as
lost, so no rank of an old attempt writes beside a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from training.cluster.job import (
    EXIT_DONE,
    EXIT_NEVER_AGAIN,
    EXIT_RESUME,
    STOP_FILE,
    Job,
    JobHandle,
    JobState,
    JobStatus,
    Nodes,
)
from training.cluster.marks import MARK, marked
from workspace import publish
from workspace.errors import DsmError, UserError

HANDLE_NAME = "handle.json"
EXIT_NAME = "exit.json"
LOCK_NAME = "job.lock"
START_TIMEOUT_S = 60.0
KILL_WAIT_S = 10.0


# What every launcher gives the ranks; the job's own environment wins. Each training step allocates
# and frees gigabytes; with glibc's defaults the kernel takes and gives the pages each time. Twelve
# steps of SmolLM2-135M: 109 s user + 28 s kernel and 5.8 GB by default, 94 + 12 s and 6.1 GB so.
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(128 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONUNBUFFERED": "1",
}


class LocalLauncher:
    """Implements `training.cluster.job.Launcher`.

    A cancelled job has `grace_s` to checkpoint, then `term_grace_s` after a SIGTERM.
    """

    name = "local"

    def __init__(self, *, grace_s: float = 120.0, term_grace_s: float = 10.0) -> None:
        self.grace_s = grace_s
        self.term_grace_s = term_grace_s

    def submit(self, job: Job) -> JobHandle:
        """Start `job`, or find it if it was started before."""
        if job.nodes != 1:
            raise UserError(f"the local launcher has one node, not {job.nodes}: use slurm")
        folder = job.attempt_dir
        folder.mkdir(parents=True, exist_ok=True)
        if not _was_started(folder):
            _start_watcher(job)
        record = json.loads((folder / HANDLE_NAME).read_text(encoding="utf-8"))
        return JobHandle(key=record["key"], launcher=self.name, job_id=record["job_id"])

    def poll(self, handle: JobHandle, job: Job) -> JobStatus:
        """The job's state. A job that lost its watcher has its remaining ranks killed."""
        folder = job.attempt_dir
        if _is_locked(folder):
            return JobStatus(JobState.RUNNING, f"process {handle.job_id}")
        ended = _read_exit(folder)
        if ended is not None:
            return JobStatus(_state_of(ended), _describe(ended), ended)
        left = _signal_members(folder, signal.SIGKILL)
        detail = "its watcher process died" + (f"; {left} left-over processes killed" * bool(left))
        return JobStatus(JobState.LOST, detail)

    def nodes(self) -> Nodes | None:
        """This machine has no names for anybody to choose from."""
        return None

    def cancel(self, handle: JobHandle, job: Job) -> None:
        """Ask for a checkpoint, wait up to `grace_s`, then end what is left."""
        folder = job.attempt_dir
        (folder / STOP_FILE).touch()
        for number, wait_s in (
            (None, self.grace_s),
            (signal.SIGTERM, self.term_grace_s),
            (signal.SIGKILL, KILL_WAIT_S),
        ):
            if number is not None:
                _signal_members(folder, number)
            if _wait_until_over(folder, wait_s):
                return


def _was_started(folder: Path) -> bool:
    return (folder / HANDLE_NAME).exists()


def _start_watcher(job: Job) -> None:
    folder = job.attempt_dir
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "OMP_NUM_THREADS": str(job.cpus_per_process),
        **job.environment,
        MARK: str(folder.resolve()),
    }
    publish.write_json(
        folder / "job.json",
        {
            "key": job.key,
            "command": rank_command(job),
            "nodes": job.nodes,
            "processes_per_node": job.processes_per_node,
            "cpus_per_process": job.cpus_per_process,
            "gpus_per_node": job.gpus_per_node,
        },
    )
    with (folder / "stdout.log").open("ab") as out, (folder / "stderr.log").open("ab") as err:
        watcher = subprocess.Popen(
            [sys.executable, "-m", "training.cluster.local", str(folder)],
            cwd=Path(__file__).resolve().parents[2],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _was_started(folder):
        # It may also have found another watcher at work, whose handle then appears.
        if watcher.poll() not in (None, 0) or time.monotonic() > deadline:
            raise DsmError(f"the job's watcher did not start; see {folder / 'stderr.log'}")
        time.sleep(0.02)


def rank_command(job: Job) -> list[str]:
    """The command line of the job: one rank directly, several through torchrun."""
    if job.processes_per_node == 1:
        return [sys.executable, *job.command]
    return [
        sys.executable,
        "-m",
        "training.cluster.torchrun",
        "--standalone",  # torchrun itself picks a free port: two jobs never collide
        "--nnodes=1",
        f"--nproc-per-node={job.processes_per_node}",
        *job.command,
    ]


def watch(folder: Path) -> int:
    """The watcher: run the job of `folder`, write how it ended. Returns 0."""
    with (folder / LOCK_NAME).open("a") as lock:
        if not _take(lock):
            return 0  # another watcher runs it
        if _read_exit(folder) is not None:
            return 0
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        # The ranks get the signal themselves; the watcher stays to say how they ended.
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        ranks = subprocess.Popen(job["command"])
        publish.write_json(
            folder / HANDLE_NAME,
            {"key": job["key"], "launcher": LocalLauncher.name, "job_id": str(os.getpid())},
        )
        code = ranks.wait()
        publish.write_json(folder / EXIT_NAME, {"exit_code": code if code >= 0 else 128 - code})
    return 0


def _take(lock: IO[str]) -> bool:
    # Whoever asks whether the job lives holds the lock for an instant, hence the second tries.
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
    return False


def _state_of(code: int) -> JobState:
    known = {
        EXIT_DONE: JobState.SUCCEEDED,
        EXIT_RESUME: JobState.RESUMABLE,
        EXIT_NEVER_AGAIN: JobState.NEVER_AGAIN,
    }
    if code in known:
        return known[code]
    return JobState.LOST if code > 128 else JobState.FAILED


def _describe(code: int) -> str:
    if code <= 128:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"exit code {code}"


def _read_exit(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / EXIT_NAME).read_text(encoding="utf-8"))["exit_code"])
    except FileNotFoundError:
        return None


def _is_locked(folder: Path) -> bool:
    try:
        with (folder / LOCK_NAME).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _wait_until_over(folder: Path, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while _is_locked(folder) or _members(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _members(folder: Path) -> list[int]:
    """Every process of the job: the watcher, the ranks and whatever they started."""
    own = str(folder.resolve())
    return list(marked(lambda environment: environment[MARK] == own))


def _signal_members(folder: Path, number: signal.Signals) -> int:
    """Send a signal to every process of the job; returns how many there were."""
    members = _members(folder)
    for process in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    return len(members)


if __name__ == "__main__":
    sys.exit(watch(Path(sys.argv[1])))
