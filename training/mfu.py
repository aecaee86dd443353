"""Model FLOPs utilisation: the share of the GPUs' peak that training the model's own FLOPs takes.

    measure = mfu_of(spec, ranks=8)
    measure(tokens=65536, seconds=2.1)        # 0.41; None where it is not defined

By PaLM's appendix B (arXiv 2204.02311), with the planner's shapes and data sheets. Not defined on
CPUs, on a GPU without a data sheet, in fp32 (the sheets have no peak of it), for a model that is no
plain transformer, and for stages that do other work than forward and backward over their tokens
(dpo runs a reference model, rlvr samples answers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from training.planner.hardware import Gpu, gpu_of_device
from training.planner.shape import read_shape
from training.trainers.spec import TrainSpec
from workspace.errors import UserError

Mfu: TypeAlias = Callable[[int, float], float | None]


def mfu_of(spec: TrainSpec, ranks: int) -> Mfu:
    """A function of a step's tokens (of all ranks) and seconds."""
    gpu = _gpu(spec)
    if gpu is None or spec.stage not in ("cpt", "sft") or spec.precision != "bf16":
        return lambda tokens, seconds: None
    try:
        shape = read_shape(str(spec.parent))
    except UserError:
        return lambda tokens, seconds: None
    peak = ranks * gpu.tflops["bf16"] * 1e12
    frozen = spec.adapter.method != "full"
    rows: int = getattr(spec.settings, "rows_per_step", 1)

    def measure(tokens: int, seconds: float) -> float | None:
        if seconds <= 0:
            return None
        # Rows of mean length: attention over rows of mixed lengths is a little more than this.
        per_token = shape.model_flops_per_token(max(1, round(tokens / rows)), frozen=frozen)
        return tokens * per_token / seconds / peak

    return measure


def _gpu(spec: TrainSpec) -> Gpu | None:
    if not spec.use_gpu:
        return None
    import torch

    return gpu_of_device(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
