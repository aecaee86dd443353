"""Run the shards of a stage as Prefect tasks: here one after another, or on a cluster side by side.

Here, the parallel work is in the process pools of the libraries, so that an interrupt reaches the
running shard at once. On a cluster, shards go through Prefect's Dask task runner; a shard whose
worker is lost is done again by another. Either way the work stops when the flow run is cancelled or
suspended.
"""

from __future__ import annotations

import logging
import time
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from prefect import Task
from prefect.settings import PREFECT_API_URL

from tasks.cluster import MAX_LOSSES, ClusterConfig, DaskCluster, WorkerWatch, open_cluster
from tasks.stopping import StopCheck
from workspace.errors import DsmError, UserError
from workspace.progress import Advance
from workspace.stage import Shard, ShardReport

log = logging.getLogger(__name__)

POLL_S = 1.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ProcessTask = Task[..., ShardReport]
ConfigT = TypeVar("ConfigT")


class StageStoppedError(DsmError):
    """The flow run was told to stop; what is done stays, and the next run goes on from there."""

    def __init__(self) -> None:
        super().__init__("stopped on request; the same run goes on from what is done")


class ShardLostError(DsmError):
    """A shard lost its worker again and again."""


def run_here(process: ProcessTask, config: Any, shards: Sequence[Shard], advance: Advance) -> None:
    """Shard after shard in this process."""
    stop_wanted = StopCheck()

    def advance_or_stop(n: int) -> None:
        advance(n)
        if stop_wanted():
            raise StageStoppedError

    for shard in shards:
        process(config, shard, advance_or_stop)


def run_on_cluster(
    process: ProcessTask,
    config: Any,
    shards: Sequence[Shard],
    advance: Advance,
    *,
    name: str,
    cluster: ClusterConfig,
    folder: Path,
) -> None:
    """Side by side in the jobs of a cluster; `folder` is on the file system that they share."""
    if not shards:
        return
    from prefect_dask import DaskTaskRunner

    # A job works with its own cores, whatever this machine has.
    settings = config.model_copy(update={"workers": cluster.cores})
    with (
        open_cluster(cluster, name=name, n_shards=len(shards), folder=folder) as dask,
        DaskTaskRunner(cluster=dask.cluster) as runner,
    ):
        _require_reachable_api(cluster)
        waiting = {}
        for shard in shards:
            parameters = {"config": settings, "shard": shard, "advance": count_nothing}
            waiting[runner.submit(process, parameters=parameters)] = shard
        _await_all(waiting, dask, advance)


def _require_reachable_api(cluster: ClusterConfig) -> None:
    """Nodes report each task run; an API on this machine's loopback they cannot reach."""
    url = PREFECT_API_URL.value() or ""
    if cluster.scheduler_host in LOOPBACK or urllib.parse.urlsplit(url).hostname not in LOOPBACK:
        return
    raise UserError(
        f"cluster: the nodes cannot reach the Prefect API at {url}: serve it on an address of this "
        "machine and set PREFECT_API_URL to that, or stop it, so that the run starts one of its "
        "own. If this machine is the only node, set scheduler_host: 127.0.0.1 in the cluster file"
    )


def count_nothing(n: int) -> None:
    """Progress inside a shard does not leave its node; a shard counts when it ends."""


def _await_all(waiting: dict[Any, Shard], dask: DaskCluster, advance: Advance) -> None:
    watches: tuple[Callable[[], None], ...] = (WorkerWatch(dask), _stop_when_told())
    while waiting:
        for future in [future for future in waiting if future.wrapped_future.done()]:
            shard = waiting.pop(future)
            _collect(future, shard, dask)
            advance(shard.units)
        for watch in watches:
            watch()
        if waiting:
            time.sleep(POLL_S)


def _collect(future: Any, shard: Shard, dask: DaskCluster) -> None:
    from distributed.scheduler import KilledWorker

    try:
        future.result()
    except KilledWorker as error:
        worker = getattr(error.last_worker, "address", "unknown")
        raise ShardLostError(
            f"shard {shard.index} lost its worker {MAX_LOSSES} times, the last at {worker}. Its "
            f"job died: look in {dask.logs}. For want of memory, raise memory or lower cores "
            "in the cluster file; what is done is kept"
        ) from error


def _stop_when_told() -> Callable[[], None]:
    stop_wanted = StopCheck()

    def check() -> None:
        if stop_wanted():
            raise StageStoppedError

    return check
