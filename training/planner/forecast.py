"""A job on a cluster: each kind of node planned on its own, the best of them, and its scaling.

    found = forecast(shape, job, machines, tokens)
    found.best                      # the PartPlan that ends first; None when nothing fits

A synchronous step waits for its slowest GPU and holds what its smallest holds, so that a job does
not span different GPUs: what it would do there is told as `mixed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from training.planner.calibration import load
from training.planner.hardware import Machine
from training.planner.layout import Job
from training.planner.memory import Memory
from training.planner.scaling import ScalingRow, finish, scaling_table
from training.planner.search import TENSOR_LINK_GBYTES, Candidate, LayoutPlan, Lost, plan_layouts
from training.planner.shape import ModelShape


class PartPlan(NamedTuple):
    """The job on one kind of node."""

    plan: LayoutPlan
    scaling: list[ScalingRow]
    hours: float
    cost: float | None


class Forecast(NamedTuple):
    """The job on every kind of node, the one that ends first at the front."""

    shape: ModelShape
    job: Job
    tokens: float
    parts: list[PartPlan]
    mixed: str  # what one job over all kinds would do; empty with one kind

    @property
    def best(self) -> PartPlan | None:
        """Where the job ends first; None when it fits nowhere."""
        first = self.parts[0]
        return first if first.plan.candidates else None

    def as_json(self, shown: int) -> dict[str, Any]:
        """Plain JSON, at most `shown` layouts and `shown` losers of each part."""
        shape = self.shape
        return {
            "model": {
                "name": shape.name,
                "parameters": shape.parameters,
                "active_parameters": shape.active_parameters,
                "model_flops_per_token": shape.model_flops_per_token(self.job.seq_len),
            },
            "job": {
                "seq_len": self.job.seq_len,
                "global_batch": self.job.global_batch,
                "tokens": self.tokens,
                "arithmetic": self.job.arithmetic,
                "method": self.job.method,
                "optimizer": self.job.optimizer,
            },
            "mixed": self.mixed,
            "parts": [_part_json(part, shown) for part in self.parts],
        }


def forecast(
    shape: ModelShape,
    job: Job,
    machines: Sequence[Machine],
    tokens: float,
    *,
    tensor_link_gbytes: float = TENSOR_LINK_GBYTES,
) -> Forecast:
    """Plan a job on every kind of node of a cluster."""
    constants = load()
    parts = []
    for machine in machines:
        plan = plan_layouts(shape, job, machine, constants, tensor_link_gbytes=tensor_link_gbytes)
        rows = scaling_table(
            shape, job, machine, tokens, constants, tensor_link_gbytes=tensor_link_gbytes
        )
        hours, cost = float("inf"), None
        if plan.candidates:
            hours, cost = finish(machine, plan.best.speed.tokens_per_second, tokens)
        parts.append(PartPlan(plan, rows, hours, cost))
    parts.sort(key=lambda part: part.hours)
    mixed = ""
    if len(machines) > 1:
        mixed = _mixed(shape, job, parts, tensor_link_gbytes)
    return Forecast(shape, job, tokens, parts, mixed)


def _mixed(shape: ModelShape, job: Job, parts: Sequence[PartPlan], link: float) -> str:
    """One job over all nodes, at the slowest GPU's pace and the smallest's memory."""
    machines = [part.plan.machine for part in parts]
    slowest = min(machines, key=lambda machine: machine.gpu.tflops["bf16"])
    common = slowest.model_copy(
        update={
            "nodes": sum(machine.nodes for machine in machines),
            "gpus_per_node": min(machine.gpus_per_node for machine in machines),
            "domain": min(machine.domain for machine in machines),
            "memory_gib": min(machine.memory_gib for machine in machines),
            "link_gbytes": min(machine.link_gbytes for machine in machines),
            "fabric_gbytes": min(machine.fabric_gbytes for machine in machines),
        }
    )
    head = f"one job over {' and '.join(machine.gpu.name for machine in machines)} is refused: "
    head += f"every step waits for {slowest.gpu.name}"
    plan = plan_layouts(shape, job, common, load(), tensor_link_gbytes=link)
    if not plan.candidates:
        return f"{head}; and {plan.nothing_fits}"
    rate = plan.best.speed.tokens_per_second
    best = parts[0].plan
    if not best.candidates:
        return f"{head}; it would reach {rate:,.0f} tokens/s"
    share = rate / best.best.speed.tokens_per_second
    alone = best.machine.gpu.name
    return f"{head}; it would reach {rate:,.0f} tokens/s, {share:.2f}x of {alone} alone"


def candidate_json(item: Candidate) -> dict[str, Any]:
    """A layout with its memory, speed and degrees."""
    layout, speed = item.layout, item.speed
    return {
        "layout": layout.label,
        "dp": layout.dp,
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "virtual_stages": layout.virtual_stages,
        "sharding": layout.sharding,
        "shard_group": layout.shard_group,
        "micro_batch": layout.micro_batch,
        "activation_checkpointing": layout.checkpointing,
        "peak_memory_gib": round(item.memory.total, 2),
        "memory_gib": {name: round(getattr(item.memory, name), 2) for name in Memory._fields},
        "step_seconds": speed.seconds,
        "mfu": speed.mfu,
        "tokens_per_second": speed.tokens_per_second,
        "tokens_per_second_per_gpu": speed.tokens_per_second_per_gpu,
        "step_parts_seconds": {
            name: getattr(speed, name)
            for name in (
                "products", "attention", "elementwise", "transfers", "bubble", "optimizer",
            )
        },
    }  # fmt: skip


def _part_json(part: PartPlan, shown: int) -> dict[str, Any]:
    machine = part.plan.machine
    fits = bool(part.plan.candidates)
    return {
        "gpu": machine.gpu.name,
        "nodes": machine.nodes,
        "gpus": machine.gpus,
        "memory_gib": machine.memory_gib,
        "link_gbytes": machine.link_gbytes,
        "fabric_gbytes": machine.fabric_gbytes,
        "fabric_measured": machine.fabric_measured,
        "hours": part.hours if fits else None,
        "cost": part.cost,
        "feasible": len(part.plan.candidates),
        "layouts": [candidate_json(item) for item in part.plan.candidates[:shown]],
        "lost": [_lost_json(lost) for lost in part.plan.lost[:shown]],
        "lost_by_reason": counted(part.plan.lost),
        "scaling": [_row_json(row) for row in part.scaling],
    }


def _lost_json(lost: Lost) -> dict[str, str]:
    return {"layout": lost.layout.label, "why": lost.why, "detail": lost.detail}


def _row_json(row: ScalingRow) -> dict[str, Any]:
    if row.candidate is None:
        return {"nodes": row.nodes, "layout": None, "why": row.why}
    return {
        "nodes": row.nodes,
        "layout": row.candidate.layout.label,
        "tokens_per_second": row.candidate.speed.tokens_per_second,
        "speedup": row.speedup,
        "efficiency": row.efficiency,
        "hours": row.hours,
        "cost": row.cost,
    }


def counted(lost: Sequence[Lost]) -> dict[str, int]:
    """Losers by reason."""
    found: dict[str, int] = {}
    for item in lost:
        found[item.why] = found.get(item.why, 0) + 1
    return dict(sorted(found.items()))
