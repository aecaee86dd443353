"""A step's time: definitions, limits that physics sets, and the direction of every change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.planner.calibration import Calibration, load
from training.planner.hardware import GpuGroup, Machine, machine_of
from training.planner.layout import Checkpointing, Job, Layout
from training.planner.shape import read_shape
from training.planner.speed import Speed, estimate

EIGHT = read_shape("Llama-3.1-8B")
JOB = Job(seq_len=8192, global_batch=64)
CONSTANTS = load()


def machine(gpu: str = "H100", nodes: int = 1, **changes: float) -> Machine:
    return machine_of(GpuGroup.model_validate({"gpu": gpu, "nodes": nodes, **changes}))


def fsdp(dp: int, **changes: object) -> Layout:
    return replace(Layout(dp=dp, sharding="zero3"), **changes)  # type: ignore[arg-type]


def speed(layout: Layout, job: Job = JOB, on: Machine | None = None) -> Speed:
    return estimate(EIGHT, job, layout, on or machine(), CONSTANTS)


def test_tokens_and_mfu_follow_from_the_time_by_their_definitions() -> None:
    """MFU by PaLM's appendix B: observed tokens/s over those at the full 16-bit rate."""
    found = speed(fsdp(8))
    assert found.tokens_per_second == pytest.approx(64 * 8192 / found.seconds)
    assert found.tokens_per_second_per_gpu == pytest.approx(found.tokens_per_second / 8)
    flops = 6 * 8_030_261_248 + 12 * 32 * 32 * 128 * 8192
    assert found.mfu == pytest.approx(found.tokens_per_second * flops / (8 * 989.4e12))


def test_a_pipeline_without_anything_else_idles_as_megatron_s_formula_says() -> None:
    """(p - 1) / m of the time, and that over v when interleaved (arXiv 2104.04473)."""
    quiet = Calibration(jitter=0.0, step_seconds=0.0, hop_seconds=0.0, tensor_overlap=0.999)
    job = Job(seq_len=4096, global_batch=16, fused=True)
    plain = estimate(EIGHT, job, Layout(pp=4), machine(), quiet)
    busy = plain.seconds - plain.bubble - plain.optimizer
    assert plain.bubble == pytest.approx(busy * 3 / 16)
    pieces = estimate(EIGHT, job, Layout(pp=4, virtual_stages=2), machine(), quiet)
    assert pieces.bubble == pytest.approx(plain.bubble / 2)


def test_ideal_hardware_and_links_reach_the_products_alone() -> None:
    """At full rates with free memory: 6 FLOPs a weight and the causal half of attention."""
    ideal = Calibration(
        gemm_hopper=1.0, attention_hopper=1.0, elementwise=1e-9, weight_traffic=1e-9,
        layer_seconds=0.0, step_seconds=0.0, jitter=0.0, memory=1e9,
    )  # fmt: skip
    job = Job(seq_len=4096, global_batch=1, fused=True)
    found = estimate(EIGHT, job, Layout(), machine(), ideal)
    weights = 6 * (EIGHT.matmul_parameters - 64 * EIGHT.hidden) * 4096
    forward = 2 * 4096**2 * 4096 * 32
    assert found.products + found.attention == pytest.approx(
        (weights + 3.5 * forward) / 989.4e12, rel=1e-3
    )


def test_full_checkpointing_costs_about_a_third_more() -> None:
    ratio = speed(fsdp(8, checkpointing="full")).products / speed(fsdp(8)).products
    assert ratio == pytest.approx(4 / 3, abs=0.03)


def test_tensor_parallelism_over_nodes_costs_more_than_inside() -> None:
    on = machine(nodes=4)
    inside = speed(Layout(tp=8, dp=4), on=on)
    across = speed(Layout(tp=16, dp=2), on=on)
    assert across.transfers > 2 * inside.transfers


def test_a_gpu_of_twice_the_rate_is_faster_but_not_twice() -> None:
    one = speed(fsdp(8), on=machine("H100")).seconds
    fast = speed(fsdp(8), on=machine("B200")).seconds
    assert one / 2.3 < fast < one


def test_eight_bits_help_and_adapters_need_no_weight_gradients() -> None:
    full = speed(fsdp(8))
    assert speed(fsdp(8), replace(JOB, arithmetic="fp8")).seconds < full.seconds
    assert speed(fsdp(8), replace(JOB, method="lora")).products < 0.8 * full.products


def test_experts_want_one_kernel_for_all_and_not_a_loop() -> None:
    shape, on = read_shape("Qwen3-30B-A3B"), machine("B200")
    layout = Layout(dp=8, ep=8, sharding="zero1", checkpointing="full")

    def seconds(**how: bool) -> float:
        job = Job(seq_len=4096, global_batch=64, arithmetic="mxfp8", **how)
        return estimate(shape, job, layout, on, CONSTANTS).seconds

    assert seconds(fused_experts=True) < seconds() < seconds(looped_experts=True)


@given(
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.sampled_from(["none", "selective", "alternate", "full"]),
    st.sampled_from(["A100", "H100", "H200", "B200"]),
    st.sampled_from([512, 2048, 8192, 32768]),
)
def test_more_nodes_of_plain_data_parallelism_never_lose_throughput(
    nodes: int, kept: Checkpointing, gpu: str, seq_len: int
) -> None:
    """A batch that grows with the nodes: throughput may stall, but not fall."""
    rates = []
    for count in (nodes, 2 * nodes):
        job = Job(seq_len=seq_len, global_batch=8 * count)
        layout = Layout(dp=8 * count, sharding="zero1", checkpointing=kept)
        on = machine(gpu, nodes=count)
        rates.append(estimate(EIGHT, job, layout, on, CONSTANTS).tokens_per_second)
    assert rates[1] > 0.95 * rates[0]


@given(st.floats(1, 1000), st.floats(1, 100))
def test_a_faster_fabric_is_never_slower(fabric: float, factor: float) -> None:
    layout = fsdp(32)
    slow = speed(layout, on=machine(nodes=4, fabric_gbytes=fabric))
    fast = speed(layout, on=machine(nodes=4, fabric_gbytes=fabric * factor))
    assert fast.seconds <= slow.seconds * (1 + 1e-9)


@given(st.sampled_from(["Mixtral-8x7B", "DeepSeek-V3", "Llama-2-13B", "MPT-350m"]),
       st.sampled_from(["bf16", "fp8", "mxfp8", "nvfp4", "fp32"]),
       st.sampled_from(["A100", "H100", "GB300", "RTX4090"]))  # fmt: skip
def test_no_gpu_exceeds_its_own_rate(model: str, arithmetic: str, gpu: str) -> None:
    on = machine(gpu)
    job = Job(seq_len=4096, global_batch=64, arithmetic=arithmetic)  # type: ignore[arg-type]
    layout = Layout(dp=on.gpus, sharding="zero3")
    found = estimate(read_shape(model), job, layout, on, CONSTANTS)
    best = max(on.gpu.tflops.values()) / on.gpu.tflops["bf16"]
    assert 0 < found.mfu < best
