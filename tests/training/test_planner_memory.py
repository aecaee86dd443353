"""Memory of a GPU: the ZeRO paper's figures, what moves it, and in which direction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.planner.calibration import Calibration, load
from training.planner.layout import Checkpointing, Job, Layout, Sharding
from training.planner.memory import GIB, lora_parameters, peak_memory, state_bytes
from training.planner.shape import read_shape

SEVEN = read_shape("Llama-2-7B")
JOB = Job(seq_len=4096, global_batch=64)
# Nothing but what is counted.
BARE = Calibration(fragmentation=1.0, base_gib=0.0, communicator_gib=0.0, memory_margin=1.0)


@pytest.mark.parametrize(
    ("sharding", "gigabytes"),
    [("none", 120.0), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)],
)
def test_states_are_those_of_the_zero_paper(sharding: Sharding, gigabytes: float) -> None:
    """Figure 1 of arXiv 1910.02054: 7.5 B parameters on 64 GPUs, mixed-precision Adam."""
    states = sum(state_bytes(sharding, 64, "adamw", gradient_bytes=2.0))
    assert 7.5 * states == pytest.approx(gigabytes, abs=0.06)


def test_lora_adapters_are_counted_by_hand() -> None:
    """Rank r on a matrix of m x n: r (m + n); Llama-2-7B at rank 16 has 39,976,960 of them."""
    h, ffn, rank = 4096, 11008, 16
    layer = rank * (4 * (h + h) + 3 * (h + ffn))
    assert lora_parameters(SEVEN, rank) == 32 * layer == 39_976_960


def test_full_checkpointing_keeps_a_layer_s_input_alone() -> None:
    """32 layers x 4096 tokens x 4096 numbers of 2 bytes = 1 GiB."""
    full = peak_memory(SEVEN, JOB, Layout(checkpointing="full"), BARE)
    offload = peak_memory(SEVEN, JOB, Layout(checkpointing="offload"), BARE)
    assert full.activations - offload.activations == pytest.approx(30 / 32)


def test_whole_logits_take_their_size_by_their_bytes() -> None:
    memory = peak_memory(SEVEN, JOB, Layout(), BARE)
    assert memory.logits == pytest.approx(BARE.logits_bytes * 4096 * 32000 / GIB)
    chunked = peak_memory(SEVEN, replace(JOB, loss="chunked"), Layout(), BARE)
    assert chunked.logits == 0


def test_a_pipeline_s_first_stage_holds_as_many_micro_batches_as_stages() -> None:
    one = peak_memory(SEVEN, JOB, Layout(), BARE).activations
    piped = peak_memory(SEVEN, JOB, Layout(pp=4), BARE).activations
    # A quarter of the layers, four micro-batches: the same again (32 layers + the head: 9 of 36).
    assert piped == pytest.approx(one * 36 / 32, rel=0.02)


def test_the_margin_is_on_top_of_everything() -> None:
    plain = peak_memory(SEVEN, JOB, Layout(), replace_margin(1.0)).total
    assert peak_memory(SEVEN, JOB, Layout(), replace_margin(1.2)).total == pytest.approx(
        1.2 * plain
    )


def test_each_kind_of_communicator_takes_its_buffers() -> None:
    constants = BARE.model_copy(update={"communicator_gib": 0.75, "exchange_gib": 3.0})
    for layout, communicators in (
        (Layout(), 0),
        (Layout(dp=8, sharding="zero3"), 1),
        (Layout(dp=8, sharding="zero3", shard_group=4), 2),
        (Layout(dp=2, tp=4, pp=2), 3),
    ):
        outside = peak_memory(SEVEN, JOB, layout, constants).outside
        assert outside == pytest.approx(0.75 * communicators)
    experts = peak_memory(read_shape("Mixtral-8x7B"), JOB, Layout(dp=8, ep=8), constants)
    assert experts.outside == pytest.approx(2 * 0.75 + 3.0)


def test_what_comes_and_goes_fragments_and_states_do_not() -> None:
    constants = BARE.model_copy(update={"fragmentation": 1.5})
    memory = peak_memory(SEVEN, JOB, Layout(dp=8, sharding="zero3"), constants)
    passing = memory.gathered + memory.activations + memory.logits
    assert memory.fragmentation == pytest.approx(0.5 * passing)


def replace_margin(margin: float) -> Calibration:
    return load().model_copy(update={"memory_margin": margin})


@given(
    st.sampled_from(["none", "zero1", "zero2", "zero3"]),
    st.sampled_from(["none", "selective", "alternate", "full", "offload"]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
def test_more_sharing_never_needs_more(
    sharding: Sharding, kept: Checkpointing, dp: int, micro: int
) -> None:
    layout = Layout(dp=dp, sharding=sharding, checkpointing=kept, micro_batch=micro)
    total = peak_memory(SEVEN, JOB, layout, load()).total
    wider = peak_memory(SEVEN, JOB, replace(layout, dp=2 * dp), load()).total
    larger = peak_memory(SEVEN, JOB, replace(layout, micro_batch=2 * micro), load()).total
    assert wider <= total * (1 + 1e-9)
    assert larger > total


def test_adapters_and_quantised_weights_need_less_in_that_order() -> None:
    totals = [
        peak_memory(SEVEN, Job(4096, 8, method=method), Layout(checkpointing="full"), load()).total
        for method in ("full", "lora", "qlora")
    ]
    assert totals[0] > 2 * totals[1] > 2 * totals[2]
