"""The settings of each stage of a run; those that all stages share are in `shared_settings`.

The form, the command line, the YAML recipes and the trainers all read these classes.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import field_validator

from workspace.config import StageConfig, setting

StageName = Literal["cpt", "sft", "dpo", "rlvr"]
STAGES: tuple[StageName, ...] = ("cpt", "sft", "dpo", "rlvr")
SEQUENCES_PER_ROW: dict[StageName, int] = {"cpt": 1, "sft": 1, "dpo": 2, "rlvr": 1}
Backend = Literal["trl", "fsdp", "external"]
Precision = Literal["bf16", "fp32"]
ChosenPrecision = Literal["auto", "bf16", "fp32"]


class StageSettings(StageConfig):
    """What every stage has: limits beside its own budget. The first one that is met ends it."""

    max_steps: int = setting(
        0, position=50, ge=0, description="Optimizer steps at most (0: no limit)"
    )
    max_hours: float = setting(
        0.0,
        position=51,
        ge=0,
        le=100_000,
        description="Hours of training at most, over all attempts (0: no limit); the stage ends at "
        "the step in which they are used up",
    )


class CptSettings(StageSettings):
    """Continued pre-training on plain text, packed into sequences of one length."""

    backend: Literal["fsdp", "external"] = setting(
        "fsdp", position=1, description="Trainer: our own loop over FSDP2, or an external program"
    )
    epochs: float = setting(1.0, position=2, gt=0, le=1000, description="Passes over the text")
    token_budget: int = setting(
        0,
        position=3,
        ge=0,
        description="Stop after about this many tokens, whatever the epochs say (0: no limit)",
    )
    sequence_length: int = setting(
        1024, position=4, ge=16, le=1 << 22, description="Tokens of a packed sequence"
    )
    rows_per_step: int = setting(
        16,
        position=5,
        ge=1,
        le=1 << 20,
        description="Sequences in one optimizer step, over all ranks and whatever their number",
    )
    micro_batch: int = setting(
        0,
        position=6,
        ge=0,
        le=65536,
        description="Sequences in one forward pass of one rank (memory); the rest of its share is "
        "accumulated (0: as the layout says, which is 1 on CPUs)",
        affects_output=False,
    )
    learning_rate: float = setting(5e-5, position=7, gt=0, le=1, description="Peak of AdamW's rate")
    warmup_share: float = setting(
        0.05, position=8, ge=0, lt=1, description="Share of the steps in which the rate rises"
    )
    final_rate_share: float = setting(
        0.1,
        position=9,
        ge=0,
        le=1,
        description="Rate at the end, as a share of the peak; it falls as a cosine",
    )
    weight_decay: float = setting(0.1, position=10, ge=0, le=1, description="AdamW weight decay")
    max_grad_norm: float = setting(
        1.0, position=11, gt=0, le=1000, description="Gradients are clipped to this norm"
    )
    async_save: bool = setting(
        True,
        position=12,
        description="Write checkpoints while training goes on",
        affects_output=False,
    )


class SftSettings(StageSettings):
    """Supervised fine-tuning on prompt and answer; the loss covers the answer alone."""

    backend: Backend = setting(
        "trl",
        position=0,
        description="Trainer: TRL, our own loop over FSDP2, or an external program",
    )
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
        0,
        position=5,
        ge=0,
        le=1 << 24,
        description="Tokens in one forward pass of one rank, padding included (memory; 0: 1024 on "
        "CPUs, on GPUs as many full rows as the layout says)",
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


class DpoSettings(StageSettings):
    """Direct preference optimisation: a verified right answer against one that was refused."""

    backend: Literal["trl", "external"] = setting(
        "trl", position=0, description="Trainer: TRL, or an external program"
    )
    epochs: float = setting(1.0, position=1, gt=0, le=1000, description="Passes over the pairs")
    token_budget: int = setting(
        0,
        position=2,
        ge=0,
        description="Stop after about this many tokens of both answers (0: no limit)",
    )
    learning_rate: float = setting(1e-6, position=3, gt=0, le=1, description="Peak of AdamW's rate")
    rows_per_step: int = setting(
        16, position=4, ge=1, le=65536, description="Pairs in one optimizer step, over all ranks"
    )
    micro_batch: int = setting(
        0,
        position=5,
        ge=0,
        le=65536,
        description="Pairs in one forward pass of one rank, at most (0: all of its share on CPUs, "
        "on GPUs as the layout says)",
    )
    max_length: int = setting(
        768,
        position=6,
        ge=16,
        le=1_048_576,
        description="Tokens in prompt and answer; longer pairs are left out and counted",
    )
    beta: float = setting(
        0.1, position=7, gt=0, le=100, description="How closely the model stays to where it began"
    )
    warmup_share: float = setting(
        0.1, position=8, ge=0, lt=1, description="Share of the steps in which the rate rises"
    )
    max_grad_norm: float = setting(
        1.0, position=9, gt=0, le=1000, description="Gradients are clipped to this norm"
    )


class RlvrSettings(StageSettings):
    """GRPO with verified rewards. `steps: 0` leaves the stage out.

    The first of steps, epochs and tokens that is used up ends it.
    """

    backend: Literal["trl", "external"] = setting(
        "trl", position=0, description="Trainer: TRL, or an external program"
    )
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
    micro_batch: int = setting(
        0,
        position=5,
        ge=0,
        le=1 << 20,
        description="Answers in one forward pass of one rank, at most (0: all of its share on "
        "CPUs, on GPUs as the layout says)",
    )
    max_prompt_tokens: int = setting(
        512,
        position=6,
        ge=16,
        le=1_048_576,
        description="Longer prompts are left out and counted",
    )
    learning_rate: float = setting(5e-6, position=7, gt=0, le=1, description="AdamW's rate")
    temperature: float = setting(1.0, position=8, gt=0, le=5, description="Of sampling")
    max_grad_norm: float = setting(
        1.0, position=9, gt=0, le=1000, description="Gradients are clipped to this norm"
    )
    rollouts: Literal["transformers", "vllm"] = setting(
        "transformers", position=10, description="What samples the answers (vllm: where installed)"
    )
    vllm_mode: Literal["colocate"] = setting(
        "colocate",
        position=11,
        description="vLLM on the trainer's own GPUs, where its weights can be held against the "
        "trainer's",
        affects_output=False,
    )
    vllm_memory_share: float = setting(
        0.3,
        position=12,
        gt=0,
        lt=1,
        description="Share of a GPU's memory that a colocated vLLM takes",
        affects_output=False,
    )
    sync_timeout_s: float = setting(
        600.0,
        position=14,
        gt=0,
        le=86400,
        description="Longest time that handing the weights to vLLM may take",
        affects_output=False,
    )
    verifier_timeout_s: float = setting(
        60.0,
        position=15,
        gt=0,
        le=3600,
        description="Longest time that the verdict on an answer may take; after it the answer has "
        "no reward",
        affects_output=False,
    )
    epochs: float = setting(
        0.0,
        position=16,
        ge=0,
        le=1000,
        description="Passes over the prompts at most (0: no limit but steps)",
    )
    token_budget: int = setting(
        0,
        position=17,
        ge=0,
        description="End at the step in which so many tokens, of each answer and its prompt, are "
        "used up (0: no limit but steps)",
    )

    def output_settings(self) -> dict[str, Any]:
        """Without limits that are not set: a run from before there were any keeps its key."""
        settings = super().output_settings()
        unset = [name for name in ("epochs", "token_budget") if not settings[name]]
        return {name: value for name, value in settings.items() if name not in unset}

    def planned_steps(self, prompts: int) -> int:
        """Optimizer steps over so many `prompts`, unless tokens or hours end them before."""
        steps = min(self.steps, self.max_steps or self.steps)
        if self.epochs:
            steps = min(steps, math.ceil(self.epochs * prompts / self.prompts_per_step))
        return steps

    @field_validator("vllm_mode", mode="before")
    @classmethod
    def _no_server(cls, mode: object) -> object:
        if mode == "server":
            raise ValueError(
                "a vLLM server gives none of its weights away, so that nobody would notice that it "
                "samples with old ones: set colocate"
            )
        return mode
