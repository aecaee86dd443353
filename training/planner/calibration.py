"""The planner's fitted constants: `calibration.yaml`, written by `training.planner.fit`.

Every constant has a physical meaning and a value known beforehand from elsewhere, which the fit may
leave only where published runs say so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field

from workspace.config import StageConfig, read_yaml

FILE: Final = Path(__file__).with_name("calibration.yaml")


class Calibration(StageConfig):
    """Shares are of what the data sheet promises, unless said otherwise."""

    gemm_ampere: float = Field(0.86, description="matrix products at large sizes")
    gemm_hopper: float = Field(0.72, description="matrix products at large sizes")
    gemm_blackwell: float = Field(0.70, description="matrix products at large sizes")
    gemm_blackwell_ultra: float = Field(0.75, description="matrix products at large sizes")
    fp8_hopper: float = Field(0.70, description="8-bit products before Blackwell, of their promise")
    fp8: float = Field(0.85, description="8-bit products of Blackwell with one scale a tensor")
    mxfp8: float = Field(0.92, description="a scale for each 32 numbers over one a tensor")
    nvfp4: float = Field(0.55, description="4-bit products, scaled in blocks")
    grouped_gemm: float = Field(0.5, description="of experts' products, over that of dense ones")
    grouped_gemm_fused: float = Field(0.70, description="the same of Blackwell's fused kernels")
    attention_ampere: float = Field(0.58, description="FlashAttention-2")
    attention_triton: float = Field(
        0.65, description="Triton's kernel of 2023, over FlashAttention-2"
    )
    attention_hopper: float = Field(0.32, description="FlashAttention-2")
    attention_hopper3: float = Field(0.56, description="FlashAttention-3 and cuDNN")
    attention_blackwell: float = Field(0.50, description="cuDNN")
    attention_blackwell2: float = Field(0.13, description="kernels made for older GPUs")
    memory: float = Field(0.80, description="bandwidth of memory-bound kernels")
    elementwise: float = Field(1.2, description="traffic of norms, activations and residuals over "
                               "that of fused kernels")  # fmt: skip
    weight_traffic: float = Field(0.5, description="share of a product's own traffic not hidden")
    layer_seconds: float = Field(250e-6, description="host and launch time of a layer, both passes")
    expert_layer_seconds: float = Field(0.002, description="the same of a layer of experts")
    expert_loop_seconds: float = Field(1e-3, description="of each expert where a loop runs them")
    step_seconds: float = Field(0.03, description="fixed time of an optimizer step")
    link: float = Field(0.75, description="bandwidth of collectives inside a node")
    fabric: float = Field(0.70, description="bandwidth of collectives between nodes")
    congestion: float = Field(0.05, description="exponent by which the fabric slows with nodes")
    hop_seconds: float = Field(8e-6, description="latency of a step of a ring")
    fused: float = Field(0.5, description="elementwise traffic of compiled or fused kernels")
    eager: float = Field(0.07, description="time lost between the kernels of uncompiled code")
    tensor_overlap: float = Field(0.15, description="tensor-parallel transfers hidden")
    tensor_overlap_async: float = Field(0.55, description="the same where products are pipelined")
    data_overlap: float = Field(0.85, description="data-parallel and sharding transfers hidden")
    expert_overlap: float = Field(0.50, description="token exchange between experts hidden")
    publish_gbytes: float = Field(3.0, description="GB/s at which new weights reach an engine")
    publish_seconds: float = Field(0.5, description="fixed time of handing them over")
    jitter: float = Field(0.005, description="time lost for each doubling of the nodes")
    stack_speed: dict[str, float] = Field(
        default_factory=dict, description="speed of a software stack over the average one"
    )
    activation: float = Field(1.0, description="stored activations over the counted ones")
    logits_bytes: float = Field(15.0, description="bytes of a logit at the loss")
    # GMLake (arXiv 2401.08156): 15 % on average over eight models, up to 33 %.
    fragmentation: float = Field(1.15, description="reserved over allocated, of what is not states")
    base_gib: float = Field(0.6, description="CUDA's context and workspaces")
    # NCCL on eight H100 (NVIDIA/nccl#1685): 32 channels, each with 10 + 2 MiB to send and as much
    # to receive; an all-to-all opens them to every peer, 3.3 GB in all.
    communicator_gib: float = Field(0.75, description="buffers of one of NCCL's communicators")
    exchange_gib: float = Field(3.0, description="of one through which experts get their tokens")
    memory_margin: float = Field(
        1.12, description="what the stated peak adds so as not to be under"
    )


@cache
def load() -> Calibration:
    """The shipped constants."""
    values = read_yaml(FILE)
    return Calibration.parse(values["constants"], origin=str(FILE))
