"""How a training step is spread over GPUs, and what is trained: the planner's two inputs.

A layout's GPUs are dp · tp · pp · cp; expert parallelism reuses the data-parallel ones. Ranks are
placed with tensor parallelism innermost, then context, data, and pipeline outermost, as
Megatron-LM does, so that what talks most shares the fastest links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["none", "zero1", "zero2", "zero3"]
# Selective: attention's inside, norms and activations are computed again. Alternate: every other
# product, too. Offload: full, with the layers' inputs in host memory.
Checkpointing = Literal["none", "selective", "alternate", "full", "offload"]
Arithmetic = Literal["fp32", "bf16", "fp8", "mxfp8", "nvfp4"]
Method = Literal["full", "lora", "qlora"]
Optimizer = Literal["adamw", "adamw_bf16", "adamw_8bit", "paged_8bit", "sgd"]
AttentionKernel = Literal["triton", "flash2", "flash3"]

Loss = Literal["whole", "fused", "chunked"]  # logits in fp32; in place; never all at once


@dataclass(frozen=True)
class Job:
    """What is trained. Batches are sequences of `seq_len` tokens."""

    seq_len: int
    global_batch: int
    arithmetic: Arithmetic = "bf16"
    method: Method = "full"
    optimizer: Optimizer = "adamw"
    lora_rank: int = 16
    attention: AttentionKernel | None = None  # None: the GPU's usual one
    loss: Loss = "whole"
    fused: bool = False  # torch.compile, Transformer Engine: fewer passes over activations
    async_tensor: bool = False  # products pipelined with tensor-parallel transfers
    fused_experts: bool = False  # one captured kernel for all experts' products (Blackwell)
    looped_experts: bool = False  # one after the other, for want of a grouped kernel
    publishes_weights: bool = False  # a step ends with 16-bit weights written for an engine
    stack: str = ""  # software whose measured efficiency applies; empty: the average one

    @property
    def tokens_per_step(self) -> int:
        return self.seq_len * self.global_batch


@dataclass(frozen=True)
class Layout:
    """One way to spread a job."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1  # pieces of each pipeline stage (interleaved schedule)
    micro_batch: int = 1
    sharding: Sharding = "none"
    shard_group: int = 0  # GPUs that hold one copy of the shards (hybrid sharding); 0: all of dp
    checkpointing: Checkpointing = "none"

    @property
    def gpus(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def replicas_per_shard(self) -> int:
        """Over how many data- and context-parallel GPUs states are divided."""
        return self.shard_group or self.dp * self.cp

    def micro_batches(self, job: Job) -> float:
        """Micro-batches of a step in each replica; the last may be partial."""
        return max(1.0, job.global_batch / (self.dp * self.micro_batch))

    @property
    def label(self) -> str:
        """Short name for tables: `FSDP 32`, `DP 4 · TP 8`."""
        parts = []
        if self.dp > 1 or self.gpus == 1:
            kind = {"none": "DP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}
            hybrid = self.sharding == "zero3" and 0 < self.shard_group < self.dp * self.cp
            name = f"HSDP {self.shard_group}x" if hybrid else f"{kind[self.sharding]} "
            parts.append(f"{name}{self.dp // self.shard_group if hybrid else self.dp}")
        parts += [
            f"{name} {n}"
            for name, n in (("TP", self.tp), ("PP", self.pp), ("CP", self.cp), ("EP", self.ep))
            if n > 1
        ]
        if self.virtual_stages > 1:
            parts.append(f"VP {self.virtual_stages}")
        return " · ".join(parts)
