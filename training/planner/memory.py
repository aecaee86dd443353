"""Peak memory of the fullest GPU, part by part.

    peak_memory(shape, job, layout, constants).total       # GiB

States follow the ZeRO paper (arXiv 1910.02054) with fp32 gradients where data-parallel training
accumulates them so; activations follow Korthikanti et al. (arXiv 2205.05198) without the attention
matrix, which flash attention never stores. What comes and goes fragments, states do not; outside of
the allocator are CUDA's context and the buffers of every communicator, which nvidia-smi shows and a
run's own count of its peak does not. Not covered: offloading of weights or optimizer states.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from training.planner.calibration import Calibration
from training.planner.layout import Job, Layout, Optimizer, Sharding
from training.planner.shape import ModelShape

GIB: Final = float(1 << 30)
_OPTIMIZER_BYTES: Final[dict[Optimizer, float]] = {
    "adamw": 12,  # fp32 copy of the weights, two fp32 moments
    "adamw_bf16": 4,
    "adamw_8bit": 2,
    "paged_8bit": 0,  # moments in host memory, gradients used up layer by layer
    "sgd": 4,  # fp32 copy of the weights
}
_RECOMPUTED: Final = 1.6  # a layer's activations and their gradients, alive together
_ADAPTED_PER_LAYER: Final = 4  # LoRA on the attention's matrices; feed-forward parts add the same
_KEPT: Final = {"selective": 0.65, "alternate": 0.5}  # of a layer's activations
_QUANTISED_BYTES: Final = 0.55  # NF4 with its double-quantised scales
_GATHERED_INPUTS: Final = 6
_PREFETCHED: Final = 2  # layers whose gathered weights are there at once


class Memory(NamedTuple):
    """GiB on the fullest GPU."""

    weights: float
    gradients: float
    optimizer: float
    gathered: float  # whole layers that sharding brings together for use
    activations: float
    logits: float
    fragmentation: float  # free, but in pieces that nothing fits into
    outside: float  # of the allocator: CUDA's context, communicators' buffers
    margin: float  # so that the total is hardly ever below what a run needs

    @property
    def total(self) -> float:
        return sum(self)


def state_bytes(
    sharding: Sharding, shards: float, optimizer: Optimizer, gradient_bytes: float
) -> tuple[float, float, float]:
    """Bytes of a weight, its gradient and its optimizer state on each GPU.

    With `adamw` and 2-byte gradients these are the ZeRO paper's 16, 4 + 12/N, 2 + 14/N and 16/N.
    """
    weights, gradients, states = 2.0, gradient_bytes, _OPTIMIZER_BYTES[optimizer]
    if optimizer == "paged_8bit":
        gradients = 0.0
    if sharding != "none":
        states /= shards
    if sharding in ("zero2", "zero3"):
        gradients /= shards
    if sharding == "zero3":
        weights /= shards
    return weights, gradients, states


def peak_memory(shape: ModelShape, job: Job, layout: Layout, constants: Calibration) -> Memory:
    """Memory of the fullest GPU; with a pipeline the fuller of its first and last stage."""
    ends = {True, layout.pp == 1}
    stages = [_stage(shape, job, layout, constants, is_first=end) for end in ends]
    return max(stages, key=lambda memory: memory.total)


def _stage(
    shape: ModelShape, job: Job, layout: Layout, constants: Calibration, *, is_first: bool
) -> Memory:
    is_last = layout.pp == 1 or not is_first
    dense, routed = _local_parameters(shape, layout, is_first=is_first, is_last=is_last)
    held = dense + routed
    weights, gradients, optimizer = _states(shape, job, layout, dense, routed)
    gathered = 0.0
    if layout.sharding == "zero3":
        gathered = _gathered(shape, job, layout, held)
    stored, working = _activations(shape, job, layout)
    flying = _in_flight(job, layout) if is_first else 1.0
    activations = constants.activation * (stored * flying + working)
    logits = _logits(shape, job, layout, constants) if is_last else 0.0
    passing = gathered + activations + logits
    fragments = passing * (constants.fragmentation - 1.0)
    outside = _outside(layout, constants)
    margin = (weights + gradients + optimizer + passing + fragments + outside) * (
        constants.memory_margin - 1.0
    )
    parts = (weights, gradients, optimizer, gathered, activations, logits, fragments, outside)
    return Memory(*(part / GIB for part in (*parts, margin)))


def _outside(layout: Layout, constants: Calibration) -> float:
    """Bytes that no allocator of the trainer's counts."""
    hybrid = layout.sharding == "zero3" and 0 < layout.shard_group < layout.dp * layout.cp
    communicators = hybrid + sum(
        degree > 1 for degree in (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep)
    )
    gib = constants.base_gib + constants.communicator_gib * communicators
    return (gib + (constants.exchange_gib if layout.ep > 1 else 0.0)) * GIB


def _gathered(shape: ModelShape, job: Job, layout: Layout, held: float) -> float:
    """Bytes of whole weights and gradients that a stage of `held` parameters brings together."""
    table = _table(shape, layout)
    grads = 2.0 if job.method == "full" else 0.0
    if layout.pp > 1:
        # Stages keep what they gathered and add up whole gradients until the last micro-batch.
        return held * (2.0 + 2.0 * grads)
    layer = (held - table) / shape.layers
    if job.method == "qlora":
        # Gathered as it is stored; one matrix at a time is made 16-bit.
        return layer * (_QUANTISED_BYTES * _PREFETCHED + 2.0 / 3.0) + 2.0 * table
    return layer * (2.0 * _PREFETCHED + grads) + table * (2.0 + grads)


def _table(shape: ModelShape, layout: Layout) -> float:
    return shape.embedding_parameters / layout.tp


def _stage_layers(shape: ModelShape, layout: Layout) -> int:
    """Layers of the fullest stage; the output layer takes the place of some in the last."""
    if layout.pp == 1:
        return shape.layers
    if layout.virtual_stages > 1:
        return math.ceil(shape.layers / layout.pp)
    head = shape.embedding_parameters / (shape.active_layer_parameters / shape.layers)
    return min(shape.layers, math.ceil((shape.layers + head) / layout.pp))


def _local_parameters(
    shape: ModelShape, layout: Layout, *, is_first: bool, is_last: bool
) -> tuple[float, float]:
    """Weights of a stage before data-parallel sharding: all but the experts, the experts."""
    share = _stage_layers(shape, layout) / shape.layers
    dense = (shape.layer_parameters - shape.routed_parameters) * share / layout.tp
    tables = int(is_first) + int(is_last) - int(is_first and is_last and shape.tied)
    routed = shape.routed_parameters * share / (layout.ep if layout.ep > 1 else layout.tp)
    return dense + tables * _table(shape, layout), routed


def _states(
    shape: ModelShape, job: Job, layout: Layout, dense: float, routed: float
) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer states."""
    # An expert's copies lie on the GPUs that do not share it out among themselves.
    copies = max(1.0, layout.replicas_per_shard * layout.tp / layout.ep)
    groups = ((dense, layout.replicas_per_shard), (routed, copies if layout.ep > 1 else
               layout.replicas_per_shard))  # fmt: skip
    if job.method != "full":
        kept = 4.0 if layout.sharding == "zero3" else 2.0
        kept = _QUANTISED_BYTES if job.method == "qlora" else kept
        frozen = sum(
            count * kept / (shards if layout.sharding == "zero3" else 1.0)
            for count, shards in groups
        )
        share = layout.tp * layout.pp
        adapters = lora_parameters(shape, job.lora_rank) / share
        parts = state_bytes(layout.sharding, layout.replicas_per_shard, job.optimizer, 4.0)
        return frozen + adapters * parts[0], adapters * parts[1], adapters * parts[2]
    pure = job.optimizer in ("adamw_bf16", "adamw_8bit", "paged_8bit")
    # Sums in fp32, and the 16-bit gradients that are about to be added to them.
    accumulated = 2.0 if pure or layout.sharding == "zero3" else 6.0
    sums = [0.0, 0.0, 0.0]
    for count, shards in groups:
        parts = state_bytes(layout.sharding, shards, job.optimizer, accumulated)
        sums = [total + count * part for total, part in zip(sums, parts, strict=True)]
    return sums[0], sums[1], sums[2]


def lora_parameters(shape: ModelShape, rank: int) -> float:
    """Weights of adapters on every linear layer (of the experts: on each)."""
    h = shape.hidden
    attention = rank * (4 * h + 2 * shape.query_width + shape.kv_width)
    matrices = 3 if shape.gated else 2
    dense = matrices * rank * (h + shape.ffn) * (shape.layers - shape.moe_layers)
    routed = matrices * rank * (h + shape.expert_ffn) * shape.experts * shape.moe_layers
    return attention * shape.layers + dense + routed


def layer_activation_width(shape: ModelShape) -> float:
    """Numbers that one token leaves in one layer for the backward pass, flash attention in use."""
    qkv = shape.query_width + shape.kv_width
    # Rotary positions leave the turned copies beside the originals; learned ones do not.
    attention = shape.query_width + qkv * (1 if shape.positions else 2)
    return 4 * shape.hidden + attention + (4 if shape.gated else 2) * ffn_width(shape)


def ffn_width(shape: ModelShape) -> float:
    """Inner width that one token meets in the average layer.

    A token is copied for each of its experts, before and after, and weighted in fp32.
    """
    if not shape.is_moe:
        return shape.ffn
    routed = shape.experts_per_token * (shape.expert_ffn + 1.5 * shape.hidden) + shape.shared_ffn
    return (routed * shape.moe_layers + shape.ffn * shape.dense_layers) / shape.layers


def _activations(shape: ModelShape, job: Job, layout: Layout) -> tuple[float, float]:
    """Bytes that a micro-batch leaves in a stage, and of the layer being worked on."""
    tokens = layout.micro_batch * job.seq_len / (layout.cp * layout.tp)
    layers = _stage_layers(shape, layout)
    whole = 2.0 * layer_activation_width(shape) * tokens
    if job.arithmetic in ("fp8", "mxfp8", "nvfp4"):
        whole *= 0.8  # inputs of products are kept in 8 bits
    # Sequence-parallel ranks gather whole inputs and gradients of the layer at work.
    shared = _GATHERED_INPUTS if layout.tp > 1 else 0
    gathered = shared * 2.0 * shape.hidden * tokens * layout.tp
    if layout.checkpointing == "none":
        return whole * layers, 0.7 * whole + gathered
    if layout.checkpointing in ("selective", "alternate"):
        return _KEPT[layout.checkpointing] * whole * layers, _RECOMPUTED * whole + gathered
    kept = 2.0 * shape.hidden * tokens * layers
    if layout.checkpointing == "offload":
        kept = 2.0 * shape.hidden * tokens * min(2, layers)
    return kept, _RECOMPUTED * whole + gathered


def _in_flight(job: Job, layout: Layout) -> float:
    """Micro-batches whose activations the first stage holds (1F1B, interleaved or not)."""
    if layout.pp == 1:
        return 1.0
    extra = (layout.pp - 1) / layout.virtual_stages if layout.virtual_stages > 1 else 0.0
    return min(layout.micro_batches(job), layout.pp + extra)


def _logits(shape: ModelShape, job: Job, layout: Layout, constants: Calibration) -> float:
    if job.loss == "chunked":
        return 0.0
    tokens = layout.micro_batch * job.seq_len / layout.cp
    # A fused loss turns 16-bit logits into their gradient in place.
    size = 4.0 if job.loss == "fused" else constants.logits_bytes
    return size * tokens * shape.vocab / layout.tp
