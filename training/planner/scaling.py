"""The same job on 1 to N nodes: speed, efficiency, time to the end, cost.

    for row in scaling_table(shape, job, machine, tokens, load()): ...

The global batch stays as it is, so that every row trains the same model; each row has its fastest
layout, so that a simpler one that was preferred on some does not show as better scaling.
`efficiency` is speed per GPU over that of the smallest number of nodes on which the job fits.
"""

from __future__ import annotations

from typing import NamedTuple

from training.planner.calibration import Calibration
from training.planner.hardware import Machine
from training.planner.layout import Job
from training.planner.search import TENSOR_LINK_GBYTES, Candidate, plan_layouts
from training.planner.shape import ModelShape


class ScalingRow(NamedTuple):
    """One number of nodes; without a candidate nothing fits, and `why` says what is missing."""

    nodes: int
    candidate: Candidate | None
    speedup: float  # over the smallest number of nodes that fits
    efficiency: float
    hours: float
    cost: float | None
    why: str = ""


def scaling_table(
    shape: ModelShape,
    job: Job,
    machine: Machine,
    tokens: float,
    constants: Calibration,
    *,
    tensor_link_gbytes: float = TENSOR_LINK_GBYTES,
) -> list[ScalingRow]:
    """Powers of two up to the machine's nodes, and all of them."""
    counts = [1 << power for power in range(machine.nodes.bit_length())]
    rows: list[ScalingRow] = []
    base: tuple[int, float] | None = None
    for nodes in sorted({*counts, machine.nodes}):
        smaller = machine.with_nodes(nodes)
        plan = plan_layouts(shape, job, smaller, constants, tensor_link_gbytes=tensor_link_gbytes)
        if not plan.candidates:
            why = plan.lost[0].detail
            rows.append(ScalingRow(nodes, None, 0.0, 0.0, float("inf"), None, why))
            continue
        best = plan.fastest
        rate = best.speed.tokens_per_second
        base = base or (nodes, rate)
        speedup = rate / base[1]
        hours, cost = finish(smaller, rate, tokens)
        rows.append(ScalingRow(nodes, best, speedup, speedup * base[0] / nodes, hours, cost))
    return rows


def finish(machine: Machine, tokens_per_second: float, tokens: float) -> tuple[float, float | None]:
    """Hours until `tokens` are trained, and what the GPUs cost until then."""
    hours = tokens / tokens_per_second / 3600
    price = machine.price_per_gpu_hour
    return hours, None if price is None else hours * machine.gpus * price
