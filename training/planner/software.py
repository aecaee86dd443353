"""What pieces of training software do where nobody says: their kernels, schedules and defaults.

From their own documentation and configurations. A published run names its software; what it leaves
open is filled from here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from training.planner.layout import AttentionKernel, Checkpointing, Loss


class Habits(NamedTuple):
    """Defaults of a piece of software."""

    attention: AttentionKernel | None = None
    checkpointing: Checkpointing = "none"
    loss: Loss = "whole"
    fused: bool = False  # kernels, and products pipelined with transfers
    recomputes_some: bool = True  # of a layer, or else all or nothing
    recomputes_all: bool = True  # rather than the cheap parts alone, where memory is short
    seq_len: int | None = None  # of its configurations of Llama 3
    interleaved: bool = False  # pipelines run in pieces of two layers or more


# cuDNN's attention and fused kernels come with Transformer Engine.
_TRANSFORMER_ENGINE: Final = Habits(attention="flash3", fused=True, recomputes_all=False)

_HABITS: Final = {
    "megatron-lm": _TRANSFORMER_ENGINE._replace(interleaved=True),
    "megatron": _TRANSFORMER_ENGINE,
    "llama3": _TRANSFORMER_ENGINE._replace(interleaved=True),
    "nemo": _TRANSFORMER_ENGINE,
    "llm-foundry": Habits(attention="triton", loss="fused"),
    "torchtitan": Habits(checkpointing="alternate", seq_len=8192),
    "aws": Habits(checkpointing="alternate"),  # torchtitan on AWS
    "torchtune": Habits(loss="chunked", recomputes_some=False),
}


def habits_of(software: str) -> Habits:
    """Defaults of the software of that name; plain ones where it is not known."""
    name = software.lower()
    return next((habits for key, habits in _HABITS.items() if name.startswith(key)), Habits())
