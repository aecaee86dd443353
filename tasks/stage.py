"""Run a stage inside a flow: lock, plan, one task run per shard, publish, artifacts.

Where the shards run is for `tasks/shards.py`: one after another here, or on a cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from prefect import Task, task

from tasks import artifacts
from tasks._options import task_options
from tasks.cluster import ClusterConfig
from tasks.shards import run_here, run_on_cluster
from workspace.locking import stage_lock
from workspace.manifest import Manifest
from workspace.paths import Workspace
from workspace.progress import Advance
from workspace.stage import Shard, ShardReport, StagePlan, StageResult


class HasWorkspace(Protocol):
    """Every stage's configuration names the workspace that it writes to."""

    @property
    def workspace(self) -> Path: ...


class StageModule(Protocol):
    """What a stage's module offers (`workspace/stage.py`)."""

    STAGE: str
    plan: Callable[[Any], StagePlan]
    process: Callable[..., ShardReport]
    publish: Callable[[Any, StagePlan], Manifest]


ProcessShard = Callable[[Any, Shard, Advance], ShardReport]


@dataclass(frozen=True)
class StageTasks:
    """A stage's plan, and its two steps as Prefect tasks."""

    name: str  # of the flow, shown in the UI
    stage: str  # of the stage, whose lock is held
    unit: str  # what `Shard.units` count
    plan: Callable[[Any], StagePlan]
    process: Task[..., ShardReport]
    publish: Task[..., Manifest]


def stage_tasks(
    name: str, module: Any, *, unit: str, process: ProcessShard | None = None
) -> StageTasks:
    """The tasks of the flow `name` over a stage's module (a `StageModule`).

    `process` is for a stage that reports progress inside a shard; a shard counts as a whole else.
    """
    stage: StageModule = module

    def whole_shard(config: HasWorkspace, shard: Shard, advance: Advance) -> ShardReport:
        report = stage.process(config, shard)
        advance(shard.units)
        return report

    def publish_stage(config: HasWorkspace, plan: StagePlan) -> Manifest:
        return stage.publish(config, plan)

    shard_options: dict[str, Any] = task_options(name, "shard", f"{name} shard {{shard.index}}")
    publish_options: dict[str, Any] = task_options(name, "publish", f"{name} publish")
    return StageTasks(
        name=name,
        stage=stage.STAGE,
        unit=unit,
        plan=stage.plan,
        process=task(taking_back(process or whole_shard), **shard_options),
        publish=task(publish_stage, **publish_options),
    )


def taking_back(process: ProcessShard) -> ProcessShard:
    """`process`, whose progress is taken back when it fails: a retry counts it again."""

    @functools.wraps(process)
    def counted(config: HasWorkspace, shard: Shard, advance: Advance) -> ShardReport:
        done = 0

        def note(units: int) -> None:
            nonlocal done
            done += units
            advance(units)

        try:
            return process(config, shard, note)
        except BaseException:
            advance(-done)
            raise

    return counted


def run_stage(
    stage: StageTasks, config: HasWorkspace, cluster: ClusterConfig | None = None
) -> StageResult:
    """Do what is left of a stage. Raises `WorkspaceBusyError` when another run is writing it."""
    with stage_lock(Workspace(config.workspace), stage.stage):
        planned = stage.plan(config)
        if planned.published is not None:
            result = StageResult(planned.published, planned.directory, skipped=True)
        else:
            _process_shards(stage, config, planned, cluster)
            manifest = stage.publish(config, planned)
            result = StageResult(manifest, planned.directory, skipped=False)
    artifacts.report_stage(stage.name, result)
    return result


def _process_shards(
    stage: StageTasks, config: HasWorkspace, planned: StagePlan, cluster: ClusterConfig | None
) -> None:
    total = sum(shard.units for shard in planned.shards)
    with artifacts.progress(stage.name, total, stage.unit) as advance:
        if cluster is None or cluster.type == "local":
            run_here(stage.process, config, planned.shards, advance)
        else:
            run_on_cluster(
                stage.process,
                config,
                planned.shards,
                advance,
                name=stage.name,
                cluster=cluster,
                folder=Workspace(config.workspace).cluster_files,
            )
