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

from training.external.prepare import program_of
from training.planner.calibration import load
from training.planner.hardware import GpuGroup, machine_of
from training.planner.layout import Job as PlannedJob
from training.planner.layout import Layout, Sharding
from training.planner.links import Links, with_links
from training.planner.memory import peak_memory
from training.planner.search import Candidate, Limits, plan_layouts
from training.planner.shape import read_shape
from training.planner.speed import estimate
from training.trainers.ability import FSDP, TRL, Ability
from training.trainers.settings import (
    SEQUENCES_PER_ROW,
    Backend,
    CptSettings,
    DpoSettings,
    Precision,
    RlvrSettings,
    SftSettings,
    StageName,
)
from training.trainers.shared_settings import (
    AdapterSettings,
    ExternalSettings,
    ParallelismSettings,
    ParallelLayout,
)
from workspace.errors import UserError

_SHARDING: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")  # by `zero`


class Demand(NamedTuple):
    """What a stage asks of its ranks. Rows are sequences here, two of them to a pair."""

    stage: StageName
    backend: Backend
    ability: Ability
    sequence_length: int
    rows_per_step: int
    micro_batch: int  # sequences of one forward pass that the settings name; 0: the layout's
    adapter: AdapterSettings
    precision: Precision
    keeps_reference: bool = False  # a second copy of the weights, in fp32
    engine_share: float = 0.0  # of a GPU's memory, for what samples answers beside the trainer


def demand_of(
    stage: StageName,
    settings: CptSettings | SftSettings | DpoSettings | RlvrSettings,
    adapter: AdapterSettings,
    precision: Precision,
    external: ExternalSettings,
) -> Demand:
    """The demand of a stage with these settings.

    Raises `UserError` when the external program that is to train it cannot do the stage.
    """
    per_row = SEQUENCES_PER_ROW[stage]
    if isinstance(settings, CptSettings):
        size = (settings.sequence_length, settings.rows_per_step, settings.micro_batch)
    elif isinstance(settings, SftSettings):
        tokens, longest = settings.tokens_per_forward, settings.max_length
        size = (longest, settings.rows_per_step, max(1, tokens // longest) if tokens else 0)
    elif isinstance(settings, DpoSettings):
        rows = per_row * settings.rows_per_step
        size = (settings.max_length, rows, per_row * settings.micro_batch)
    else:
        length = settings.max_prompt_tokens + settings.max_new_tokens
        answers = settings.prompts_per_step * settings.generations
        size = (length, answers, settings.micro_batch)
    ability = _ability(settings.backend, external, stage)
    demand = Demand(stage, settings.backend, ability, *size, adapter, precision)
    if isinstance(settings, RlvrSettings) and settings.rollouts == "vllm":
        return demand._replace(engine_share=settings.vllm_memory_share)
    reference = isinstance(settings, DpoSettings) and adapter.method == "full"
    return demand._replace(keeps_reference=reference)


def _ability(backend: Backend, external: ExternalSettings, stage: StageName) -> Ability:
    if backend == "external":
        return program_of(external, stage).ability
    return FSDP if backend == "fsdp" else TRL


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
        if demand.backend == "fsdp" or "dp_replicate" not in demand.ability.degrees:
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
    refusal = demand.ability.refusal(layout)
    if refusal:
        raise UserError(
            f"parallelism: the {demand.ability.trainer} trainer of {demand.stage} {refusal}; set "
            f"{demand.stage}.backend, or another layout"
        )
    return layout


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
        layout = _planned(settings, demand)
        constants = load()
        memory = peak_memory(shape, job, layout, constants)
        return Candidate(layout, memory, estimate(shape, job, layout, machine, constants))
    plan = plan_layouts(shape, job, machine, load(), limits=_limits(demand))
    best = plan.best  # also the error that names the nearest miss when nothing fits at all
    for candidate in plan.candidates:
        told = _translate(candidate.layout)
        if candidate.layout.ep == 1 and not demand.ability.refusal(told):
            return candidate
    raise UserError(
        f"{demand.stage}: the {demand.ability.trainer} trainer does {demand.ability.words} "
        f"alone, which does not fit {machine.gpus} x {machine.gpu.name} "
        f"({machine.memory_gib:g} GiB each); "
        f"{best.layout.label} would. {_cure(demand)}"
    )


def _limits(demand: Demand) -> Limits:
    """What the planner may choose for this trainer; none is told of interleaved pipelines."""
    return Limits(
        micro_batch=demand.micro_batch,
        unit=SEQUENCES_PER_ROW[demand.stage],
        checkpointing=demand.ability.checkpointing,
        pieces=(1,),
    )


def _cure(demand: Demand) -> str:
    """What to change when the trainer cannot do what would fit."""
    cures = ["train adapters (adapter.method: lora)", f"set {demand.stage}.backend: external"]
    if demand.backend == "external":
        cures = ["choose another external.program", "other GPUs"]
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


def _planned(settings: ParallelismSettings, demand: Demand) -> Layout:
    """The trainers' degrees in the planner's form."""
    dp = settings.dp_shard * settings.dp_replicate
    sharded = settings.dp_shard > 1 and settings.zero > 0
    group = settings.dp_shard * settings.cp if sharded and settings.dp_replicate > 1 else 0
    return Layout(
        dp=dp,
        tp=settings.tp,
        pp=settings.pp,
        cp=settings.cp,
        micro_batch=demand.micro_batch or settings.micro_batch,
        sharding=_SHARDING[settings.zero] if sharded else "none",
        shard_group=group,
        checkpointing=settings.activation_checkpointing,
    )
