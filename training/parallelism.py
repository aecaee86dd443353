"""Over how many ranks, and how, a stage is spread: what `parallelism` stands for.

    layout = resolve_layout(
        settings, demand, model=folder, nodes=4, processes_per_node=8, gpus=True
    )

`auto` asks the planner (`training.planner.search`) for the fastest layout that fits the GPUs and
that the stage's trainer can do; on CPUs it is data parallelism over all ranks. `given` is checked.
Raises `UserError` naming what does not fit and the cure.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from training.planner.calibration import load
from training.planner.hardware import GpuGroup, machine_of
from training.planner.layout import Job as PlannedJob
from training.planner.layout import Layout, Sharding
from training.planner.links import Links, with_links
from training.planner.memory import peak_memory
from training.planner.search import Candidate, plan_layouts
from training.planner.shape import read_shape
from training.planner.speed import estimate
from training.trainers.settings import (
    AdapterSettings,
    Backend,
    CptSettings,
    DpoSettings,
    ParallelismSettings,
    ParallelLayout,
    Precision,
    RlvrSettings,
    SftSettings,
    StageName,
)
from workspace.errors import UserError

_SHARDING: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")  # by `zero`
_ABLE = {
    "trl": "copies of the whole model (dp_replicate)",
    "fsdp": "data parallelism (dp_shard, dp_replicate)",
}


class Demand(NamedTuple):
    """What a stage asks of its ranks."""

    stage: StageName
    backend: Backend
    sequence_length: int
    rows_per_step: int
    adapter: AdapterSettings
    precision: Precision
    keeps_reference: bool = False  # a second copy of the weights, in fp32
    engine_share: float = 0.0  # of a GPU's memory, for what samples answers beside the trainer


def demand_of(
    stage: StageName,
    settings: CptSettings | SftSettings | DpoSettings | RlvrSettings,
    adapter: AdapterSettings,
    precision: Precision,
) -> Demand:
    """The demand of a stage with these settings."""
    if isinstance(settings, CptSettings):
        size = (settings.sequence_length, settings.rows_per_step)
    elif isinstance(settings, SftSettings):
        size = (settings.max_length, settings.rows_per_step)
    elif isinstance(settings, DpoSettings):
        size = (settings.max_length, 2 * settings.rows_per_step)  # two answers to each prompt
    else:
        length = settings.max_prompt_tokens + settings.max_new_tokens
        size = (length, settings.prompts_per_step * settings.generations)
    demand = Demand(stage, settings.backend, *size, adapter, precision)
    if isinstance(settings, RlvrSettings) and settings.rollouts == "vllm":
        return demand._replace(engine_share=settings.vllm_memory_share)
    reference = isinstance(settings, DpoSettings) and adapter.method == "full"
    return demand._replace(keeps_reference=reference)


def resolve_layout(
    settings: ParallelismSettings,
    demand: Demand,
    *,
    model: Path | str,
    nodes: int,
    processes_per_node: int,
    gpus: bool,
    links: Links | None = None,
) -> ParallelLayout:
    """The layout of a job of that many ranks.

    `model`: a folder, or a name the planner knows; `links`: measured between its nodes.
    """
    ranks = nodes * processes_per_node
    if settings.mode == "given":
        return _check(settings, demand, ranks)
    if not gpus:
        if demand.backend == "fsdp":
            return ParallelLayout(dp_shard=ranks)
        return ParallelLayout(dp_replicate=ranks, zero=0)
    return _translate(plan_of(settings, demand, model, nodes, processes_per_node, links).layout)


def _check(settings: ParallelismSettings, demand: Demand, ranks: int) -> ParallelLayout:
    layout = ParallelLayout(
        **{name: getattr(settings, name) for name in ParallelLayout.model_fields}
    )
    if layout.ranks != ranks:
        raise UserError(
            f"parallelism: dp_shard x dp_replicate x tp x pp x cp is {layout.ranks}, but the job "
            f"has {ranks} ranks (nodes x processes_per_node)"
        )
    if not _can(demand.backend, layout):
        raise UserError(
            f"parallelism: the {demand.backend} trainer of {demand.stage} does "
            f"{_ABLE[demand.backend]} alone; set {demand.stage}.backend, or other degrees"
        )
    return layout


def _can(backend: Backend, layout: ParallelLayout) -> bool:
    if backend == "external":
        return True
    return layout.is_data_parallel and (backend == "fsdp" or layout.dp_shard == 1)


def plan_of(
    settings: ParallelismSettings,
    demand: Demand,
    model: Path | str,
    nodes: int,
    processes_per_node: int,
    links: Links | None = None,
) -> Candidate:
    """Memory and speed of the layout on the GPUs that the settings describe.

    With `auto`, of the planner's first choice among what the trainer can do. Raises `UserError`
    when nothing fits.
    """
    machine = machine_of(
        GpuGroup(
            gpu=settings.gpu,
            nodes=nodes,
            gpus_per_node=processes_per_node,
            memory_gib=settings.gpu_memory_gib,
            link_gbytes=settings.link_gbytes,
            fabric_gbytes=settings.fabric_gbytes,
        )
    )
    if links is not None and nodes > 1:
        machine = with_links(machine, links)
    job = PlannedJob(
        seq_len=demand.sequence_length,
        global_batch=demand.rows_per_step,
        arithmetic=demand.precision,
        method=demand.adapter.method,
        lora_rank=demand.adapter.rank,
        fused=demand.backend == "external",  # TRL and our loop run the model uncompiled
    )
    shape = read_shape(str(model))
    taken = demand.engine_share * machine.memory_gib
    if demand.keeps_reference:
        taken += 4 * shape.parameters / 2**30
    machine = machine.model_copy(update={"memory_gib": round(machine.memory_gib - taken, 1)})
    if settings.mode == "given":
        layout = _planned(settings)
        constants = load()
        memory = peak_memory(shape, job, layout, constants)
        return Candidate(layout, memory, estimate(shape, job, layout, machine, constants))
    plan = plan_layouts(shape, job, machine, load())
    best = plan.best  # also the error that names the nearest miss when nothing fits at all
    for candidate in plan.candidates:
        if candidate.layout.ep == 1 and _can(demand.backend, _translate(candidate.layout)):
            return candidate
    raise UserError(
        f"{demand.stage}: the {demand.backend} trainer does {_ABLE.get(demand.backend, '')} "
        f"alone, which does not fit {machine.gpus} x {machine.gpu.name} "
        f"({machine.memory_gib:g} GiB each); "
        f"{best.layout.label} would. {_cure(demand)}"
    )


def _cure(demand: Demand) -> str:
    """What to change when the trainer cannot do what would fit."""
    cures = ["train adapters (adapter.method: lora)", f"set {demand.stage}.backend: external"]
    if demand.stage == "sft" and demand.backend == "trl":
        cures.insert(0, "set sft.backend: fsdp")
    return f"{', '.join(cures[:-1])} or {cures[-1]}".capitalize() + "."


def _translate(layout: Layout) -> ParallelLayout:
    """The planner's layout in the degrees of the trainers."""
    shard = 1
    if layout.sharding != "none":
        # A shard group counts context-parallel ranks, which hold the same weights.
        shard = max(1, layout.shard_group // layout.cp) if layout.shard_group else layout.dp
    kept = layout.checkpointing
    return ParallelLayout(
        dp_shard=shard,
        dp_replicate=layout.dp // shard,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        zero=_SHARDING.index(layout.sharding),
        micro_batch=layout.micro_batch,
        activation_checkpointing=kept if kept in ("none", "selective") else "full",
    )


def _planned(settings: ParallelismSettings) -> Layout:
    """The trainers' degrees in the planner's form."""
    dp = settings.dp_shard * settings.dp_replicate
    sharded = settings.dp_shard > 1 and settings.zero > 0
    group = settings.dp_shard * settings.cp if sharded and settings.dp_replicate > 1 else 0
    return Layout(
        dp=dp,
        tp=settings.tp,
        pp=settings.pp,
        cp=settings.cp,
        micro_batch=settings.micro_batch,
        sharding=_SHARDING[settings.zero] if sharded else "none",
        shard_group=group,
        checkpointing=settings.activation_checkpointing,
    )
