"""Time of a training step: products, attention, memory-bound kernels, transfers, pipeline bubble.

    estimate(shape, job, layout, machine, constants).seconds

A product takes its FLOPs at the GPU's reachable rate plus a share of its own memory traffic, which
is what makes small matrices slow. Collectives are rings with bandwidth and latency, hierarchical
where a group spans nodes; what computation can hide is hidden by a fitted share. FLOPs of attention
count the causal half, as the kernels do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from training.planner.calibration import Calibration
from training.planner.hardware import Machine
from training.planner.layout import Checkpointing, Job, Layout, Method
from training.planner.memory import ffn_width, lora_parameters
from training.planner.shape import ModelShape

_BF16: Final = 2.0
_NARROW_HEADS: Final = 0.15  # 171 against 189 TFLOPS at 64 and 128 (arXiv 2307.08691)
_BACKWARD_ATTENTION: Final = 2.5  # flash attention recomputes the scores (arXiv 2205.14135)

# Share of the forward pass's products that is computed again.
_AGAIN: Final[dict[Checkpointing, float]] = {
    "none": 0.0, "selective": 0.0, "alternate": 0.5, "full": 1.0, "offload": 1.0,
}  # fmt: skip

# Forward-sized passes: frozen weights need no gradients of their own, adapters' are counted apart.
_TRAINED: Final[dict[Method, float]] = {"full": 3.0, "lora": 2.0, "qlora": 2.0}


@dataclass(frozen=True)
class Speed:
    """A step's time and where it goes, seconds."""

    seconds: float
    products: float
    attention: float
    elementwise: float
    transfers: float  # what computation does not hide
    bubble: float
    optimizer: float
    tokens_per_second: float  # all GPUs together
    tokens_per_second_per_gpu: float
    mfu: float  # PaLM appendix B over the data sheet's 16-bit rate


@dataclass(frozen=True)
class _Pass:
    """Work of one micro-batch in one layer of one GPU, seconds."""

    products: float
    attention: float
    elementwise: float

    @property
    def total(self) -> float:
        return self.products + self.attention + self.elementwise


def estimate(
    shape: ModelShape, job: Job, layout: Layout, machine: Machine, constants: Calibration
) -> Speed:
    """Time of one optimizer step."""
    model = _Model(shape, job, layout, machine, constants)
    return model.speed()


class _Model:
    """One step's arithmetic; every method returns seconds unless it says otherwise."""

    def __init__(
        self,
        shape: ModelShape,
        job: Job,
        layout: Layout,
        machine: Machine,
        constants: Calibration,
    ) -> None:
        self.shape, self.job, self.layout = shape, job, layout
        self.machine, self.constants = machine, constants
        self.tokens = layout.micro_batch * job.seq_len / layout.cp
        self.count = layout.micro_batches(job)
        self.stack = constants.stack_speed.get(job.stack, 1.0)

    def speed(self) -> Speed:
        shape, layout = self.shape, self.layout
        layer, head = self._layer(), self._head()
        routed = shape.moe_layers / shape.layers
        overhead = self.constants.layer_seconds * (1.0 - routed)
        host = 0.3 if self._fused_experts else 1.0
        overhead += self.constants.expert_layer_seconds * routed * host
        if self.job.looped_experts:
            overhead += self.constants.expert_loop_seconds * routed * shape.experts / layout.ep
        per_layer = layer.total + overhead + self._tensor_transfers() + self._expert_transfers()
        per_layer += self._context_transfers(layer)
        stage_layers = shape.layers / layout.pp
        slowest = math.ceil(shape.layers / (layout.pp * layout.virtual_stages)) * (
            layout.virtual_stages
        )
        micro = max(stage_layers * per_layer + head / layout.pp, slowest * per_layer)
        micro += self._accumulation()
        busy = self.count * micro
        pipe = (layout.pp - 1) / (self.count * layout.virtual_stages) * busy
        sharded = self._sharding_transfers(busy)
        optimizer = self._optimizer()
        jitter = 1.0 + self.constants.jitter * math.log2(max(1, self.machine.nodes))
        idle = 1.0 if self.job.fused else 1.0 + self.constants.eager
        seconds = (busy + pipe + sharded) * jitter * idle / self.stack + optimizer
        tokens = self.job.tokens_per_step / seconds
        gpus = layout.gpus
        flops = tokens * shape.model_flops_per_token(
            self.job.seq_len, frozen=self.job.method != "full"
        )
        compute = self.count * stage_layers
        return Speed(
            seconds=seconds,
            products=compute * layer.products + self.count * head / layout.pp,
            attention=compute * layer.attention,
            elementwise=compute * (layer.elementwise + overhead),
            transfers=compute * (per_layer - layer.total - overhead) + sharded,
            bubble=pipe,
            optimizer=optimizer,
            tokens_per_second=tokens,
            tokens_per_second_per_gpu=tokens / gpus,
            mfu=flops / (gpus * self.machine.gpu.tflops["bf16"] * 1e12),
        )

    @property
    def _passes(self) -> tuple[float, float]:
        """Forward-sized passes of products and of attention in a step."""
        again = _AGAIN[self.layout.checkpointing]
        trained = 3.0 if self.job.method == "full" else 2.0
        whole = 1.0 if again == 1.0 else 0.0  # only then are the scores computed again, too
        return trained + again, 1.0 + _BACKWARD_ATTENTION + whole

    def _gemm_rate(self) -> float:
        """FLOP/s of large 16-bit products."""
        family = self.machine.gpu.family
        share = float(getattr(self.constants, f"gemm_{family}"))
        limit = math.sqrt(self.machine.gpu.power_share)
        return self.machine.gpu.tflops["bf16"] * 1e12 * share * limit

    def _quantised_speed(self) -> float:
        """Speed of the layers' products over 16-bit ones."""
        tflops = self.machine.gpu.tflops
        kind = self.job.arithmetic
        if kind == "nvfp4" and "fp4" in tflops:
            return max(1.0, tflops["fp4"] / tflops["bf16"] * self.constants.nvfp4)
        if kind in ("fp8", "mxfp8", "nvfp4") and "fp8" in tflops:
            share = self.constants.fp8 * self.constants.mxfp8
            if not self.machine.gpu.family.startswith("blackwell"):
                share = self.constants.fp8_hopper
            elif kind == "fp8":
                share = self.constants.fp8
            return max(1.0, tflops["fp8"] / tflops["bf16"] * share)
        return 0.5 if kind == "fp32" else 1.0

    def _product(self, rows: float, inner: float, columns: float, *, speed: float) -> float:
        """One pass of a matrix product of 16-bit numbers; `speed` scales its rate alone."""
        if not (rows and inner and columns):
            return 0.0
        flops = 2.0 * rows * inner * columns
        traffic = _BF16 * (rows * inner + inner * columns + rows * columns)
        moved = self.constants.weight_traffic * traffic / self._memory_rate()
        return flops / (self._gemm_rate() * speed) + moved

    def _memory_rate(self) -> float:
        return self.machine.gpu.memory_gbytes * 1e9 * self.constants.memory

    def _layer(self) -> _Pass:
        shape, tp, tokens = self.shape, self.layout.tp, self.tokens
        speed = self._quantised_speed()
        passes, attention_passes = self._passes
        attention_width = shape.attention_parameters / shape.hidden / tp
        products = self._product(tokens, shape.hidden, attention_width, speed=speed)
        dense_share = 1.0 - shape.moe_layers / shape.layers
        matrices = 3 if shape.gated else 2
        products += dense_share * self._product(
            tokens, shape.hidden, matrices * shape.ffn / tp, speed=speed
        )
        if shape.is_moe:
            products += (1.0 - dense_share) * self._experts(speed, matrices)
        products *= passes
        if self.job.method != "full":
            products *= 1.0 + 3.0 * self._adapter_share()
        if self.job.method == "qlora":
            # Read in 4 bits, written and read in 16, in every pass.
            held = shape.layer_parameters / shape.layers / tp
            products += passes * 4.5 * held / self._memory_rate()
        half = 0.5 * 4.0 * tokens * self.job.seq_len
        scores = half * shape.query_width / tp
        attention = scores * attention_passes / self._attention_rate()
        streams = 14.0 * shape.hidden + 3.0 * ffn_width(shape)
        streams += 2.0 * (shape.query_width + shape.kv_width)
        if self.job.method != "full":
            # Every adapter reads its input and adds to its product's output.
            outputs = shape.query_width + shape.kv_width + shape.hidden + 3.0 * ffn_width(shape)
            streams += 4.0 * (outputs + shape.hidden)
        quantised = 1.3 if speed > 1.0 else 1.0  # casts and scales
        again = 0.0 if self.layout.checkpointing == "none" else 1.0
        moved = _BF16 * streams * tokens / tp * (_TRAINED[self.job.method] + again) * quantised
        traffic = self.constants.elementwise * (self.constants.fused if self.job.fused else 1.0)
        elementwise = traffic * moved / self._memory_rate()
        if self.layout.checkpointing == "offload":
            elementwise += 0.02 * (products + attention)
        return _Pass(products, attention, elementwise)

    def _adapter_share(self) -> float:
        adapters = lora_parameters(self.shape, self.job.lora_rank)
        if self.shape.is_moe:
            adapters *= self.shape.experts_per_token / self.shape.experts
        return min(1.0, adapters / self.shape.active_layer_parameters)

    @property
    def _fused_experts(self) -> bool:
        return self.job.fused_experts and self.machine.gpu.family.startswith("blackwell")

    def _experts(self, speed: float, matrices: int) -> float:
        """One pass of a layer's routed and shared experts."""
        shape, layout = self.shape, self.layout
        spread = layout.ep if layout.ep > 1 else 1
        mine = shape.experts / spread
        constants = self.constants
        share = constants.grouped_gemm_fused if self._fused_experts else constants.grouped_gemm
        # Tokens meet on the GPU that holds the expert; on average as many come as go.
        rows = self.tokens / layout.tp * spread * shape.experts_per_token / shape.experts
        routed = mine * self._product(
            rows,
            shape.hidden,
            matrices * shape.expert_ffn,
            speed=speed * share,
        )
        width = matrices * shape.shared_ffn / layout.tp
        return routed + self._product(self.tokens, shape.hidden, width, speed=speed)

    def _attention_rate(self) -> float:
        family, kernel = self.machine.gpu.family, self.job.attention
        constants = self.constants
        share = {
            "ampere": constants.attention_ampere,
            "hopper": constants.attention_hopper3
            if kernel == "flash3"
            else constants.attention_hopper,
        }.get(
            family,
            constants.attention_blackwell2
            if kernel in ("flash2", "triton")
            else constants.attention_blackwell,
        )
        if kernel == "triton":
            share *= constants.attention_triton
        # Narrow heads leave the matrix units waiting for the softmax.
        narrow = min(1.0, math.pow(self.shape.head_dim / 128, _NARROW_HEADS))
        limit = math.sqrt(self.machine.gpu.power_share)
        return self.machine.gpu.tflops["bf16"] * 1e12 * share * narrow * limit

    def _head(self) -> float:
        """The output layer and the loss, all passes."""
        shape, tp = self.shape, self.layout.tp
        passes = _TRAINED[self.job.method]
        product = self._product(self.tokens, shape.hidden, shape.vocab / tp, speed=1.0)
        loss = 20.0 * self.tokens * shape.vocab / tp / self._memory_rate()
        return passes * product + loss

    def _rate(self, group: int, stride: int) -> float:
        """Bytes/s of a ring over `group` GPUs that lie `stride` apart, as each GPU sees it."""
        machine, constants = self.machine, self.constants
        inside = machine.link_gbytes * 1e9 * constants.link
        if group * stride <= machine.domain:
            return inside
        # Rings enter a node once: all its ports serve the members that lie in it.
        members = max(1.0, min(group, machine.domain / stride))
        nodes = max(1.0, group * stride / machine.domain)
        fabric = self._fabric_rate() * math.pow(nodes, -constants.congestion)
        return min(inside, fabric * members)

    def _fabric_rate(self) -> float:
        """Bytes/s that collectives between two nodes reach, as a GPU sees it."""
        reached = 1.0 if self.machine.fabric_measured else self.constants.fabric
        return self.machine.fabric_gbytes * 1e9 * reached

    def _ring(self, size: float, group: int, stride: int) -> float:
        """All-gather or reduce-scatter of `size` bytes over a group."""
        if group <= 1 or size <= 0:
            return 0.0
        steps = (group - 1) * self.constants.hop_seconds
        latency = min(steps, 40 * self.constants.hop_seconds * math.log2(group))
        return size * (group - 1) / group / self._rate(group, stride) + latency

    def _tensor_transfers(self) -> float:
        """Of one layer and micro-batch: four collectives forward, four backward."""
        tp = self.layout.tp
        if tp == 1:
            return 0.0
        again = 1.5 if self.layout.checkpointing in ("full", "offload") else 1.0
        one = self._ring(_BF16 * self.tokens * self.shape.hidden, tp, 1)
        constants = self.constants
        hidden = constants.tensor_overlap
        if self.job.async_tensor:
            hidden = constants.tensor_overlap_async
        return 8.0 * again * one * (1.0 - hidden)

    def _context_transfers(self, layer: _Pass) -> float:
        """Keys and values around the ring, hidden behind attention where that is longer."""
        cp = self.layout.cp
        if cp == 1:
            return 0.0
        size = _BF16 * self.tokens * self.shape.kv_width / self.layout.tp * cp
        moved = 3.0 * self._ring(size, cp, self.layout.tp)
        return 0.15 * moved + max(0.0, 0.85 * moved - layer.attention)

    def _expert_transfers(self) -> float:
        """Tokens to their experts and back, both passes, average layer."""
        shape, layout = self.shape, self.layout
        if layout.ep == 1 or not shape.is_moe:
            return 0.0
        sent = _BF16 * self.tokens / layout.tp * shape.experts_per_token * shape.hidden
        machine, constants = self.machine, self.constants
        near = min(1.0, machine.domain / layout.ep)
        inside = machine.link_gbytes * 1e9 * constants.link
        outside = self._fabric_rate()
        # A token goes to a node once, however many of its experts are there.
        nodes = layout.ep / max(1, machine.domain)
        visits = nodes * (1 - (1 - 1 / nodes) ** shape.experts_per_token) if nodes > 1 else 0.0
        far = sent * visits / shape.experts_per_token * (1 - 1 / nodes) if nodes > 1 else 0.0
        again = 1.5 if layout.checkpointing in ("full", "offload") else 1.0
        moved = 4.0 * again * max(sent * near / inside, far / outside)
        exposed = moved * (1.0 - constants.expert_overlap)
        return exposed * shape.moe_layers / shape.layers

    def _sharding_transfers(self, busy: float) -> float:
        """Gradients and sharded weights of a whole step, as far as they show."""
        layout, shape = self.layout, self.shape
        replicas = layout.dp * layout.cp
        if replicas == 1:
            return 0.0
        stride = layout.tp
        local = self._local_parameters
        trained = 1.0 if self.job.method == "full" else 0.02
        rings = 2.0 * shape.layers / layout.pp if layout.sharding == "zero3" else 8.0
        shards = layout.replicas_per_shard

        def gather(size: float, group: int) -> float:
            return rings * self._ring(size / rings, group, stride)

        if layout.sharding == "zero3":
            gathers = 2.0 * gather(_BF16 * local, shards)
            reduced = gather(_BF16 * local * trained, shards)
            moved = self.count * (gathers + reduced)
            if shards < replicas:
                moved += 2.0 * gather(4.0 * local * trained / shards, replicas // shards)
        else:
            # ZeRO-2 cannot keep whole gradients until the last micro-batch.
            times = self.count if layout.sharding == "zero2" else 1.0
            moved = times * gather(4.0 * local * trained, replicas)
            moved += gather(_BF16 * local * trained, replicas)
        hidden = min(self.constants.data_overlap * moved, 0.9 * busy)
        if layout.sharding in ("none", "zero1"):
            # Only the last micro-batch's backward pass can hide it.
            hidden = min(hidden, 0.6 * busy / self.count)
        return moved - hidden

    @property
    def _local_parameters(self) -> float:
        """Weights of one GPU before data-parallel sharding."""
        layout, shape = self.layout, self.shape
        routed = shape.routed_parameters / (layout.ep if layout.ep > 1 else layout.tp)
        dense = (shape.parameters - shape.routed_parameters) / layout.tp
        return (dense + routed) / layout.pp

    def _accumulation(self) -> float:
        """Adding a micro-batch's gradients to those before it, in fp32."""
        if self.job.method != "full" or self.count <= 1:
            return 0.0
        local = self._local_parameters
        if self.layout.sharding == "zero3":
            local /= self.layout.replicas_per_shard
        return 10.0 * local / self._memory_rate()

    def _optimizer(self) -> float:
        layout, shape = self.layout, self.shape
        local = self._local_parameters
        if self.job.method != "full":
            local = lora_parameters(shape, self.job.lora_rank) / (layout.tp * layout.pp)
        if layout.sharding != "none":
            local /= layout.replicas_per_shard
        seconds = self.constants.step_seconds + 30.0 * local / self._memory_rate()
        if self.job.publishes_weights:
            full = self.job.method == "full"
            new = shape.parameters if full else lora_parameters(shape, self.job.lora_rank)
            seconds += self.constants.publish_seconds
            seconds += _BF16 * new / (self.constants.publish_gbytes * 1e9)
        return seconds
