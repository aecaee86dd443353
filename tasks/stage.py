"""Run a stage inside a flow: lock, plan, one task run per shard, publish, artifacts.

Shards run one after another in the flow's own thread: the parallel work is in the process pools
of the libraries, and an interrupt or a cancellation reaches the running shard at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from prefect import Task, task

from tasks import artifacts
from tasks._options import task_options
from workspace.locking import stage_lock
from workspace.manifest import Manifest
from workspace.paths import Workspace
from workspace.stage import Shard, ShardReport, StagePlan, StageResult


class HasWorkspace(Protocol):
    """Every stage's configuration names the workspace that it writes to."""

    @property
    def workspace(self) -> Path: ...


ConfigT = TypeVar("ConfigT", bound=HasWorkspace)


@dataclass(frozen=True)
class StageTasks(Generic[ConfigT]):
    """A stage's plan, and its two steps as Prefect tasks."""

    name: str
    plan: Callable[[ConfigT], StagePlan]
    process: Task[..., ShardReport]
    publish: Task[..., Manifest]


def stage_tasks(
    name: str,
    plan: Callable[[ConfigT], StagePlan],
    process: Callable[[ConfigT, Shard], ShardReport],
    publish: Callable[[ConfigT, StagePlan], Manifest],
) -> StageTasks[ConfigT]:
    """Wrap the three functions that every stage offers (`workspace/stage.py`)."""

    def process_shard(config: ConfigT, shard: Shard) -> ShardReport:
        return process(config, shard)

    def publish_stage(config: ConfigT, plan: StagePlan) -> Manifest:
        return publish(config, plan)

    shard_options: dict[str, Any] = task_options(name, "shard", f"{name} shard {{shard.index}}")
    publish_options: dict[str, Any] = task_options(name, "publish", f"{name} publish")
    return StageTasks(
        name=name,
        plan=plan,
        process=task(process_shard, **shard_options),
        publish=task(publish_stage, **publish_options),
    )


def run_stage(stage: StageTasks[ConfigT], config: ConfigT) -> StageResult:
    """Do what is left of a stage. Raises `WorkspaceBusyError` when another run is writing it."""
    with stage_lock(Workspace(config.workspace), stage.name):
        planned = stage.plan(config)
        if planned.published is not None:
            result = StageResult(planned.published, planned.directory, skipped=True)
        else:
            _process_shards(stage, config, planned)
            manifest = stage.publish(config, planned)
            result = StageResult(manifest, planned.directory, skipped=False)
    artifacts.report_stage(stage.name, result)
    return result


def _process_shards(stage: StageTasks[ConfigT], config: ConfigT, planned: StagePlan) -> None:
    with artifacts.progress(stage.name, len(planned.shards), "shards") as advance:
        for shard in planned.shards:
            stage.process(config, shard)
            advance(1)
