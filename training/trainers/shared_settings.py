"""The settings that all stages of a run share: adapters, external programs, layout, memory,
evaluation.

The form, the command line, the YAML recipes and the trainers all read these classes.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import JsonValue, field_validator, model_validator

from training.external.offers import CHECKOUTS, stages_in_words
from training.planner.hardware import find_gpu
from workspace.config import StageConfig, setting

Checkpointing = Literal["none", "selective", "full"]
Reporter = Literal["tensorboard", "wandb", "mlflow"]


class AdapterSettings(StageConfig):
    """Which weights a stage trains. Adapters are merged into the model that it publishes."""

    method: Literal["full", "lora", "qlora"] = setting(
        "full",
        position=1,
        description="All weights, or low-rank adapters over frozen ones; qlora keeps those in four "
        "bits (needs bitsandbytes)",
    )
    rank: int = setting(16, position=2, ge=1, le=4096, description="Rank of an adapter")
    alpha: float = setting(
        32.0, position=3, gt=0, le=65536, description="An adapter counts alpha / rank times"
    )
    dropout: float = setting(0.0, position=4, ge=0, lt=1, description="Dropout before adapters")
    target_modules: tuple[str, ...] = setting(
        (),
        position=5,
        description="Names of the layers that get one, like q_proj (empty: all linear layers but "
        "the output's)",
    )


class ExternalSettings(StageConfig):
    """The program of stages whose backend is `external`."""

    program: Literal["torchtitan", "nemo_rl", "verl", "prime_rl"] = setting(
        "torchtitan",
        position=1,
        description=stages_in_words(),
    )
    folder: str = setting(
        "",
        position=2,
        description=f"The program's checkout, for those run from one ({', '.join(CHECKOUTS)})",
        affects_output=False,
    )
    overrides: dict[str, JsonValue] = setting(
        default_factory=dict,
        position=3,
        description="Settings of the program by dotted name, over those that are rendered",
    )


class ParallelismSettings(StageConfig):
    """How a step is spread over the job's ranks. GPUs describe themselves to the planner here."""

    mode: Literal["auto", "given"] = setting(
        "auto",
        position=1,
        description="auto: the planner's fastest layout that fits and that the trainer can do "
        "(data-parallel on CPUs); given: the degrees below, whose product is the number of ranks",
        affects_output=False,
    )
    dp_shard: int = setting(
        1, position=2, ge=1, description="ranks that share one copy of the weights"
    )
    dp_replicate: int = setting(1, position=3, ge=1, description="copies of the weights")
    tp: int = setting(1, position=4, ge=1, description="tensor parallelism")
    pp: int = setting(1, position=5, ge=1, description="pipeline stages")
    cp: int = setting(1, position=6, ge=1, description="context parallelism")
    zero: int = setting(
        3,
        position=7,
        ge=0,
        le=3,
        description="what dp_shard divides: optimizer states (1), gradients too (2), weights too "
        "(3); the fsdp backend and torchtitan train 1 as 2",
    )
    micro_batch: int = setting(1, position=8, ge=1, description="sequences of one forward pass")
    activation_checkpointing: Checkpointing = setting(
        "none", position=9, description="activations that are computed again"
    )
    gpu: str = setting(
        "H100", position=10, description="GPU of the nodes, see training/planner/gpus.yaml"
    )
    gpu_memory_gib: float | None = setting(
        None, position=11, gt=0, le=4096, description="memory of a GPU (none: data sheet)"
    )
    link_gbytes: float | None = setting(
        None,
        position=12,
        gt=0,
        le=1e5,
        description="GB/s of a GPU to its neighbours, one direction (none: data sheet)",
    )
    fabric_gbytes: float | None = setting(
        None,
        position=13,
        gt=0,
        le=1e5,
        description="GB/s of a GPU to other nodes, one direction (none: as usually sold)",
    )

    @field_validator("gpu")
    @classmethod
    def _known(cls, gpu: str) -> str:
        return find_gpu(gpu).name

    @model_validator(mode="after")
    def _degrees_need_given(self) -> Self:
        own = ParallelLayout.model_fields
        given = [
            name for name in own if getattr(self, name) != type(self).model_fields[name].default
        ]
        if self.mode == "auto" and given:
            raise ValueError(f"{', '.join(given)} set, but mode is auto: choose mode given")
        return self


class ParallelLayout(StageConfig):
    """The degrees that a job runs with; their product is its number of ranks."""

    dp_shard: int = 1
    dp_replicate: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    zero: int = 3
    micro_batch: int = 1
    activation_checkpointing: Checkpointing = "none"

    @property
    def ranks(self) -> int:
        return self.dp_shard * self.dp_replicate * self.tp * self.pp * self.cp

    @property
    def label(self) -> str:
        """For people: `1 rank`, or `8 ranks: dp_shard 4, dp_replicate 2, zero 3`."""
        told = ", ".join(f"{name} {value}" for name, value in self if value not in (1, "none"))
        return f"{self.ranks} ranks: {told}" if self.ranks > 1 else "1 rank"


class MemorySettings(StageConfig):
    """When a rank that fills its memory is started again from a checkpoint."""

    limit_gib: float = setting(
        0.0,
        position=1,
        ge=0,
        le=1 << 20,
        description="Host memory of a node that its ranks may use together (0: what the cgroup, "
        "Slurm or the machine allow)",
    )
    restart_share: float = setting(
        0.8,
        position=2,
        ge=0,
        le=1,
        description="Share of the limit at which it saves and starts again, where that helps (0: "
        "never)",
    )


class EvaluationSettings(StageConfig):
    """Loss on rows that are not trained on, and answers to some, while cpt, sft or dpo runs."""

    every_steps: int = setting(
        0, position=1, ge=0, description="Steps between evaluations (0: never)"
    )
    held_out_share: float = setting(
        0.0,
        position=2,
        ge=0,
        lt=0.5,
        description="Share of the training rows kept aside for it (0: the data set's own "
        "validation split)",
    )
    max_rows: int = setting(
        128, position=3, ge=1, le=1_000_000, description="Rows of one evaluation, at most"
    )
    patience: int = setting(
        0,
        position=4,
        ge=0,
        le=1000,
        description="End the stage after so many evaluations in a row without a lower loss (0: do "
        "not)",
    )
    answers: int = setting(
        2,
        position=5,
        ge=0,
        le=16,
        description="Held-out prompts that the model answers at an evaluation, to be read on the "
        "run's page (0: none; external programs: none)",
        affects_output=False,
    )
    answer_tokens: int = setting(
        64,
        position=6,
        ge=1,
        le=256,
        description="Longest such answer in tokens",
        affects_output=False,
    )
