"""The folder of a run: what it was asked to do, from what, and where each part lies.

runs/<run>/run.json                       specification and lineage, written before any work
           data/<stage>.parquet           the rows, held (hard link) against a rebuilt data set
           data/<stage>-validation.parquet   those for the loss on unseen rows, where asked for
           <stage>/attempts/<n>/          spec.json, logs, metrics.jsonl, outcome.json
                   checkpoints/<n>/       by attempt
                   model/                 the stage's result;  result.json written last
           final/                         the run's model, its card and the manifest
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.data.splits import TRAIN
from training.metrics import METRICS_NAME
from training.trainers.settings import StageName
from training.trainers.shared_settings import ParallelLayout
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.errors import CorruptWorkspaceError

RUN_FILE = "run.json"
SUCCESSORS = "successors"  # in a stage's folder: jobs that may become its next attempts
SAMPLES_NAME = "samples"  # in a stage's folder: what `training.trainers.samples` made


class Placement(BaseModel):
    """Where a run began, and how often it saves: nothing that its model depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    launcher: str
    nodes: int
    processes_per_node: int
    gpus_per_node: int
    gpu: str = Field(description="as the planner was told; empty on CPUs")
    layouts: dict[StageName, ParallelLayout]
    checkpoint_every_steps: int = Field(description="0: chosen from the measured time of a save")
    keep_checkpoints: int
    node_mtbf_hours: float


class RunRecord(BaseModel):
    """`run.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    key: str
    settings: dict[str, Any]
    lineage: dict[str, str] = Field(
        description="corpus, graph, dataset -> key; base_model -> content hash; code -> version; "
        "recipe -> NAME@HASH, where it began with one"
    )
    base_model: str
    stages: tuple[StageName, ...]
    created: str
    placement: Placement | None = Field(
        default=None, description="where it began; records of earlier versions do not say"
    )


@dataclass(frozen=True)
class StageFolder:
    """Paths of one stage of a run."""

    root: Path
    stage: StageName

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def attempt(self, number: int) -> Path:
        return self.attempts / str(number)

    @property
    def successors(self) -> Path:
        return self.root / SUCCESSORS

    def successor(self, number: int) -> Path:
        """Where a job waits that may become attempt `number` (`training.cluster.successor`)."""
        return self.successors / str(number)

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        return self.root / "model"

    def metrics(self, attempt: int) -> Path:
        return self.attempt(attempt) / METRICS_NAME

    def latest_attempt(self) -> int:
        """The newest attempt's number, 0 when there is none."""
        numbers = (int(p.name) for p in self.attempts.glob("*") if p.name.isdigit())
        return max(numbers, default=0)

    def remove_checkpoints(self) -> None:
        """Free what a finished run no longer needs: three times the model per save, the samples."""
        for folder in (self.checkpoints, self.root / SAMPLES_NAME):
            shutil.rmtree(folder, ignore_errors=True)

    def outcome(self) -> StageOutcome | None:
        """How the stage ended, or None while it has not."""
        try:
            text = (self.root / "result.json").read_text(encoding="utf-8")
            return StageOutcome.model_validate_json(text)
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise CorruptWorkspaceError(f"{self.root / 'result.json'}: {error}") from error


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def final(self) -> Path:
        return self.root / "final"

    @property
    def links(self) -> Path:
        """Links between nodes as they were measured when the run began, if they were."""
        return self.root / "links.json"

    def stage(self, stage: StageName) -> StageFolder:
        return StageFolder(self.root / stage, stage)

    def data(self, stage: StageName, split: str = TRAIN) -> Path:
        name = stage if split == TRAIN else f"{stage}-{split}"
        return self.root / "data" / f"{name}.parquet"

    def write_record(self, record: RunRecord) -> None:
        publish.write_text(self.root / RUN_FILE, record.model_dump_json(indent=2) + "\n")

    def read_record(self) -> RunRecord | None:
        """The record, or None when the run does not exist."""
        path = self.root / RUN_FILE
        try:
            return RunRecord.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise CorruptWorkspaceError(f"{path}: {error}") from error

    def hold_data(self, stage: StageName, source: Path, split: str = TRAIN) -> None:
        """Keep `source` as it is now, whatever happens to the data set later."""
        target = self.data(stage, split)
        if not target.exists():
            with publish.atomic_path(target) as temporary:
                link_or_copy(source, temporary)


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link, or a copy across file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
