"""Where shards run: the settings of a cluster file, and a Dask cluster of Slurm jobs made of them.

    with open_cluster(config, name="ingest", n_shards=40, folder=workspace / ".cluster") as dask:
        runner = DaskTaskRunner(cluster=dask.cluster)

Every job is one Dask worker with one thread: it takes one shard at a time, in which the stage's own
process pool uses the job's cores. Traffic is encrypted and authenticated with certificates made for
this run, since whoever reaches a Dask scheduler runs code as its user. Jobs end with the block, and
a minute after the flow's process when that is killed.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import field_validator, model_validator

from workspace.config import StageConfig, setting
from workspace.environment import CHECKOUT
from workspace.errors import DsmError, MissingToolError, UserError

log = logging.getLogger(__name__)

# A shard whose worker is lost is done by another; so many losses and it is given up.
MAX_LOSSES: Final = 3
_WALLTIME: Final = re.compile(r"(?:(\d+)-)?(\d{1,2}):(\d{2})(?::(\d{2}))?")
# Before the end of its walltime a worker takes no new shard and leaves.
_LEAVE_BEFORE_END_S: Final = 300
_SAY_EVERY_S: Final = 60.0


class ClusterConfig(StageConfig):
    """A cluster file: where the shards of a stage run."""

    type: Literal["local", "slurm"] = setting(
        "local", position=0, description="local: in the flow's process; slurm: in Slurm jobs"
    )
    cores: int = setting(
        8, position=1, ge=1, le=1024, description="Cores of a job, and processes that use them"
    )
    memory: str = setting("24 GB", position=2, description="Memory of a job, such as 24 GB")
    walltime: str = setting("02:00:00", position=3, description="Time limit of a job, hh:mm:ss")
    minimum_jobs: int = setting(
        0, position=4, ge=0, le=1000, description="Jobs to keep while there is no work for them"
    )
    maximum_jobs: int = setting(4, position=5, ge=1, le=1000, description="Most jobs at a time")
    queue: str | None = setting(None, position=6, description="Partition of the jobs")
    account: str | None = setting(None, position=7, description="Account that pays for the jobs")
    job_extra_directives: list[str] = setting(
        default_factory=list, position=8, description="More options of sbatch, such as --nodes=1"
    )
    job_script_prologue: list[str] = setting(
        default_factory=list, position=9, description="Shell lines before the worker starts"
    )
    interface: str | None = setting(
        None, position=10, description="Network interface of scheduler and workers, such as ib0"
    )
    scheduler_host: str | None = setting(
        None, position=11, description="Address of this machine that the nodes reach"
    )
    local_directory: Path = setting(
        default_factory=lambda: Path(tempfile.gettempdir()),
        position=12,
        description="Scratch folder on the nodes",
    )
    log_directory: Path | None = setting(
        None, position=13, description="Folder of the jobs' logs; default inside the workspace"
    )
    start_timeout_s: float = setting(
        1800.0,
        position=14,
        gt=0,
        le=604800,
        description="Seconds to wait in the queue while no worker runs",
    )

    @field_validator("walltime")
    @classmethod
    def _check_walltime(cls, value: str) -> str:
        if _seconds(value) < 2 * _LEAVE_BEFORE_END_S:
            raise ValueError("give at least 00:10:00, as hh:mm:ss or d-hh:mm:ss")
        return value

    @model_validator(mode="after")
    def _check_jobs(self) -> Self:
        if self.minimum_jobs > self.maximum_jobs:
            raise ValueError("minimum_jobs is more than maximum_jobs")
        for line in (*self.job_extra_directives, *filter(None, (self.queue, self.account))):
            if "\n" in line:
                raise ValueError(f"{line!r}: one option a line")
        return self


def _seconds(walltime: str) -> int:
    match = _WALLTIME.fullmatch(walltime)
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def load_cluster(name: str, shipped: Path) -> ClusterConfig:
    """The cluster file called `name` in the folder `shipped`, or at the path `name`."""
    path = shipped / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in shipped.glob("*.yaml")))
        raise UserError(f"cluster {name!r}: give {known}, or the path of a cluster file")
    return ClusterConfig.from_yaml(path)


@dataclass
class DaskCluster:
    """A cluster of Slurm jobs and what is needed to say what it is doing."""

    config: ClusterConfig
    cluster: Any  # dask_jobqueue.SLURMCluster
    job_name: str
    logs: Path

    def n_workers(self) -> int:
        return len(self.cluster.scheduler_info["workers"])

    def queue(self) -> str:
        """The jobs' states with the queue's reasons, such as `3 PENDING (Resources)`."""
        shown = _run("squeue", "--noheader", "--name", self.job_name, "--format", "%T (%r)")
        lines = [line.strip() for line in shown.stdout.splitlines() if line.strip()]
        if not lines:
            return f"no job is in the queue {shown.stderr.strip()}".strip()
        return ", ".join(f"{lines.count(line)} {line}" for line in dict.fromkeys(lines))


class WorkerWatch:
    """Raises when no worker has run for `start_timeout_s`; call it while waiting."""

    def __init__(self, dask: DaskCluster) -> None:
        self._dask = dask
        self._seen = self._said = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if self._dask.n_workers():
            self._seen = now
            return
        limit = self._dask.config.start_timeout_s
        if now - self._seen > limit:
            raise UserError(
                f"cluster: no worker has run for {limit:.0f} s; the queue says: "
                f"{self._dask.queue()}; logs of the jobs: {self._dask.logs}. Ask for less in the "
                "cluster file (cores, memory, walltime), or raise start_timeout_s"
            )
        if now - self._said > _SAY_EVERY_S:
            self._said = now
            log.info("waiting for a worker: %s", self._dask.queue())


@contextmanager
def open_cluster(
    config: ClusterConfig, *, name: str, n_shards: int, folder: Path
) -> Iterator[DaskCluster]:
    """Start a scheduler here and let it ask for jobs as there is work. Raises `UserError`."""
    _require_tools()
    job_name = f"dsm-{name}-{secrets.token_hex(4)}"
    logs = _log_folder(config, folder)
    import dask
    from dask_jobqueue import SLURMCluster

    logging.getLogger("distributed").setLevel(logging.WARNING)
    with dask.config.set(_DASK_SETTINGS):
        made = SLURMCluster(**_cluster_arguments(config, job_name, logs, folder))
        try:
            _check_job(made.job_script())
            made.adapt(
                minimum_jobs=min(config.minimum_jobs, n_shards),
                maximum_jobs=min(config.maximum_jobs, n_shards),
                interval="2s",
                target_duration="1s",
            )
            yield DaskCluster(config, made, job_name, logs)
        finally:
            made.close()
            # Jobs that were asked for in the same moment as the end.
            _run("scancel", "--name", job_name)


_DASK_SETTINGS: Final[dict[str, Any]] = {
    "distributed.scheduler.allowed-failures": MAX_LOSSES - 1,
    # A shard takes minutes: ask for a worker each instead of waiting for the first to end.
    "distributed.scheduler.unknown-task-duration": "10 minutes",
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.deploy.lost-worker-timeout": "5s",
    "distributed.worker.daemon": False,  # a worker's shard starts processes of its own
}


def _cluster_arguments(
    config: ClusterConfig, job_name: str, logs: Path, folder: Path
) -> dict[str, Any]:
    lifetime = max(_seconds(config.walltime) - _LEAVE_BEFORE_END_S, _LEAVE_BEFORE_END_S)
    scheduler: dict[str, Any] = {"dashboard": False, "dashboard_address": None}
    if config.scheduler_host:
        scheduler["host"] = config.scheduler_host
    paths = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        "job_name": job_name,
        # One thread takes one shard; the job's cores are for the processes of that shard.
        "cores": 1,
        "processes": 1,
        "job_cpu": config.cores,
        "memory": config.memory,
        "walltime": config.walltime,
        "queue": config.queue,
        "account": config.account,
        "interface": config.interface,
        "job_extra_directives": ["--no-requeue", *config.job_extra_directives],
        "job_script_prologue": [
            *config.job_script_prologue,
            f"export PYTHONPATH={shlex.quote(paths)}",
        ],
        "worker_extra_args": [
            "--lifetime", f"{lifetime}s", "--lifetime-stagger", f"{_LEAVE_BEFORE_END_S // 2}s",
        ],
        "local_directory": str(config.local_directory),
        "log_directory": str(logs),
        "scheduler_options": scheduler,
        "security": True,
        "shared_temp_directory": str(folder),
    }  # fmt: skip


def _log_folder(config: ClusterConfig, folder: Path) -> Path:
    logs = (config.log_directory or folder).absolute()
    for path in (logs, folder.absolute(), config.local_directory):
        # They stand unquoted in the job's script.
        if not re.fullmatch(r"[\w./+,:@=-]+", str(path), re.ASCII):
            raise UserError(
                f"cluster: the folder {str(path)!r} has a name that sbatch cannot take (letters, "
                "digits and . _ - / only): set log_directory in the cluster file, or move it"
            )
    logs.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return logs


def _require_tools() -> None:
    if shutil.which("sbatch") is None:
        raise MissingToolError(
            "cluster: sbatch is not installed here: run the flow on a login node of the Slurm "
            "cluster, or without --cluster"
        )
    if importlib.util.find_spec("dask_jobqueue") is None:
        raise MissingToolError("cluster: dask-jobqueue is not installed: pip install '.[dask]'")


def _check_job(script: str) -> None:
    """Let sbatch judge the job before Dask submits such jobs over and over."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as stream:
        stream.write(script)
        stream.flush()
        done = _run("sbatch", "--test-only", stream.name)
    if done.returncode:
        raise UserError(f"cluster: Slurm refuses such jobs: {done.stderr.strip()}")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DsmError(f"cluster: {command[0]} failed: {error}") from error
