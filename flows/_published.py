"""What is published already: asked before Prefect is started, and shown by `--dry-run`."""

from __future__ import annotations

from typing import Any

from training import train
from training.train import TrainConfig
from workspace.locking import stage_lock
from workspace.paths import Workspace
from workspace.stage import StagePlan, StageResult


def published_stage(stage: Any, config: Any) -> StageResult | None:
    """The result of the same work of a stage's module done before, or None.

    Raises `WorkspaceBusyError` when another run is writing the stage.
    """
    planned = _plan(stage, config)
    if planned.published is None:
        return None
    return StageResult(planned.published, planned.directory, skipped=True)


def preview_stage(stage: Any, config: Any) -> str:
    """What a run of the stage would do."""
    planned = _plan(stage, config)
    if planned.published is not None:
        return f"nothing to do: already published in {planned.directory}"
    return f"{len(planned.shards)} shard(s) to do, into {planned.directory}"


def published_run(config: TrainConfig) -> StageResult | None:
    """The result of the same training done before, or None."""
    planned = train.plan(config)
    if planned.published is None:
        return None
    return StageResult(planned.published, planned.folder.final, skipped=True)


def preview_run(config: TrainConfig) -> str:
    """What a run of the training would do."""
    return train.preview(config)


def _plan(stage: Any, config: Any) -> StagePlan:
    # Under the lock: planning may sweep what a killed writer left.
    with stage_lock(Workspace(config.workspace), stage.STAGE):
        planned: StagePlan = stage.plan(config)
    return planned
