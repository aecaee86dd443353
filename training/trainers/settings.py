"""The settings of each stage of a run, and of what all stages share.

The form, the command line, the YAML recipes and the trainers all read these classes.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import JsonValue, field_validator, model_validator

from training.external.offers import CHECKOUTS, stages_in_words
from training.planner.hardware import find_gpu
from workspace.config import StageConfig, setting

StageName = Literal["cpt", "sft", "dpo", "rlvr"]
STAGES: tuple[StageName, ...] = ("cpt", "sft", "dpo", "rlvr")
SEQUENCES_PER_ROW: dict[StageName, int] = {"cpt": 1, "sft": 1, "dpo": 2, "rlvr": 1}
Backend = Literal["trl", "fsdp", "external"]
Precision = Literal["bf16", "fp32"]
ChosenPrecision = Literal["auto", "bf16", "fp32"]
Checkpointing = Literal["none", "selective", "full"]


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
    verifier_timeout_s: float = setting(
        60.0,
        position=15,
        gt=0,
        le=3600,
        description="Longest time that the verdict on an answer may take; after it the answer has "
        "no reward",
        affects_output=False,
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

    @property
    def is_data_parallel(self) -> bool:
        """Whether every rank holds and computes whole layers."""
        return self.tp == self.pp == self.cp == 1


Reporter = Literal["tensorboard", "wandb", "mlflow"]


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
        le=1024,
        description="Longest such answer in tokens",
        affects_output=False,
    )
