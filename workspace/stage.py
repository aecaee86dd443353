"""How a stage presents itself to whatever runs it (a flow, a test, a Slurm array).

A stage module offers three functions over its config:

    plan(config)            -> StagePlan    cheap; says whether the work is already published
    process(config, shard)  -> ShardReport  idempotent, any order, any process; skips what is done
    publish(config, plan)   -> Manifest     merges the shards' work, deterministic, manifest last

`process` leaves its work in `plan.directory / ".work" / plan.key`, so a killed run continues;
`publish` removes that folder. `run` below composes the three for library users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from workspace.manifest import Manifest
from workspace.progress import Progress, quiet

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True)
class Shard:
    """A piece of work of about 1-15 minutes: an index and the ids of its inputs."""

    index: int
    items: tuple[str, ...]
    units: int = 0  # what progress counts: bytes, pages, rows


@dataclass(frozen=True)
class StagePlan:
    """What is to be done, or the manifest of the same work done before."""

    stage: str
    key: str
    directory: Path
    shards: tuple[Shard, ...]
    inputs: dict[str, str]
    published: Manifest | None = None

    @property
    def work(self) -> Path:
        """Scratch folder of this key: survives a kill, removed by `publish`."""
        return self.directory / ".work" / self.key


@dataclass(frozen=True)
class ShardReport:
    """What one shard did: counts by name, rejects by reason code."""

    index: int
    counts: dict[str, int] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class StageResult(NamedTuple):
    """A stage's outcome; `skipped` when the same work was published before."""

    manifest: Manifest
    directory: Path
    skipped: bool


def run(
    config: ConfigT,
    plan: Callable[[ConfigT], StagePlan],
    process: Callable[[ConfigT, Shard], ShardReport],
    publish: Callable[[ConfigT, StagePlan], Manifest],
    progress: Progress = quiet,
) -> StageResult:
    """Run a stage in this process, shard after shard."""
    planned = plan(config)
    if planned.published is not None:
        return StageResult(planned.published, planned.directory, skipped=True)
    with progress(planned.stage, len(planned.shards), "shards") as advance:
        for shard in planned.shards:
            process(config, shard)
            advance(1)
    return StageResult(publish(config, planned), planned.directory, skipped=False)
