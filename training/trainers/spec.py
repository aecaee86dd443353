"""What a trainer process is told: one JSON file per attempt, written by the supervisor.

The settings of each stage are defined here because the form, the command line, the YAML recipes
and the trainers all read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from workspace.config import StageConfig, setting

StageName = Literal["sft", "rlvr"]
Precision = Literal["bf16", "fp32"]


class SftSettings(StageConfig):
    """Supervised fine-tuning on prompt and answer; the loss covers the answer alone."""

    epochs: float = setting(3.0, position=1, gt=0, le=1000, description="Passes over the rows")
    token_budget: int = setting(
        100_000,
        position=2,
        ge=0,
        description="Stop after about this many tokens, whatever the epochs say (0: no limit); the "
        "default takes SmolLM2-135M on two CPU cores about seven minutes",
    )
    learning_rate: float = setting(2e-4, position=3, gt=0, le=1, description="Peak of AdamW's rate")
    rows_per_step: int = setting(
        16, position=4, ge=1, le=65536, description="Rows in one optimizer step, over all ranks"
    )
    tokens_per_forward: int = setting(
        1024,
        position=5,
        ge=16,
        le=1 << 24,
        description="Tokens in one forward pass of one rank, padding included (memory)",
    )
    max_length: int = setting(
        768,
        position=6,
        ge=16,
        le=1_048_576,
        description="Tokens in prompt and answer; longer rows are left out and counted",
    )
    warmup_share: float = setting(
        0.05, position=7, ge=0, lt=1, description="Share of the steps in which the rate rises"
    )
    weight_decay: float = setting(0.01, position=8, ge=0, le=1, description="AdamW weight decay")
    max_grad_norm: float = setting(
        1.0, position=9, gt=0, le=1000, description="Gradients are clipped to this norm"
    )


class RlvrSettings(StageConfig):
    """GRPO with verified rewards. `steps: 0` leaves the stage out."""

    steps: int = setting(8, position=1, ge=0, le=1_000_000, description="Optimizer steps (0: none)")
    prompts_per_step: int = setting(
        2, position=2, ge=1, le=65536, description="Different prompts in one step, over all ranks"
    )
    generations: int = setting(
        4, position=3, ge=2, le=1024, description="Answers sampled for each prompt"
    )
    max_new_tokens: int = setting(
        48, position=4, ge=1, le=65536, description="Longest sampled answer in tokens"
    )
    max_prompt_tokens: int = setting(
        512,
        position=5,
        ge=16,
        le=1_048_576,
        description="Longer prompts are left out and counted",
    )
    learning_rate: float = setting(5e-6, position=6, gt=0, le=1, description="AdamW's rate")
    temperature: float = setting(1.0, position=7, gt=0, le=5, description="Of sampling")
    max_grad_norm: float = setting(
        1.0, position=8, gt=0, le=1000, description="Gradients are clipped to this norm"
    )


class TrainSpec(BaseModel):
    """One attempt of one stage of a run. All paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: StageName
    attempt: int
    stage_dir: Path = Field(description="runs/<run>/<stage>: attempts, checkpoints, model")
    attempt_dir: Path = Field(description="metrics.jsonl, error.json, the stop file")
    parent: Path = Field(description="folder of the model to start from")
    data: tuple[Path, ...] = Field(description="Parquet files of the stage's view, train split")
    sft: SftSettings
    rlvr: RlvrSettings
    seed: int
    precision: Precision
    use_gpu: bool
    checkpoint_every_steps: int
    keep_checkpoints: int

    @property
    def checkpoints(self) -> Path:
        return self.stage_dir / "checkpoints"

    @property
    def model_dir(self) -> Path:
        return self.stage_dir / "model"

    @property
    def result_file(self) -> Path:
        """Written last: the stage is done when it is there."""
        return self.stage_dir / "result.json"


class StageOutcome(BaseModel):
    """`result.json`: what a finished stage did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: StageName
    attempt: int
    steps: int
    rows: int = Field(description="rows that could be used")
    rejects: dict[str, int] = Field(description="reason code -> rows left out")
    tokens: int = Field(description="trained in the last attempt, without padding")
    last: dict[str, float] = Field(description="metrics of the last step")
