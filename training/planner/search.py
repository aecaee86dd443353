"""Every sensible layout of a job on equal nodes: those that fit, by speed, and why others lost.

    plan = plan_layouts(shape, job, machine, load())
    plan.best.layout, plan.best.memory.total, plan.best.speed.tokens_per_second
    plan.lost                       # layouts that are slower, do not fit, or may not be

A layout's family is its degrees of parallelism and its sharding; micro-batch, activation
checkpointing and the pieces of pipeline stages are chosen for each family. Degrees are powers of
two, and whatever else divides the number of nodes for data parallelism. Of layouts as fast as the
estimates can tell apart, the simplest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from training.planner.calibration import Calibration, load
from training.planner.hardware import Machine
from training.planner.layout import Checkpointing, Job, Layout, Sharding
from training.planner.memory import Memory, peak_memory
from training.planner.shape import ModelShape
from training.planner.speed import Speed, estimate
from workspace.errors import UserError

TENSOR_LINK_GBYTES: Final = 100.0  # NVLink has 300 and more, PCIe 5 about 60, a port 50
_TIE: Final = 0.02  # of the step's time: less than the estimates are off by
_LONGEST_WITHOUT_CP: Final = 16_384
_PLAIN: Final[tuple[Sharding, ...]] = ("none", "zero1", "zero2", "zero3")
_CHECKPOINTING: Final[tuple[Checkpointing, ...]] = ("none", "selective", "full")

_PIECES: Final = (1, 2, 4, 5)

Why = Literal["slower", "too_large", "link", "indivisible"]


class Limits(NamedTuple):
    """What the software that will run a layout leaves to choose."""

    micro_batch: int = 0  # sequences of a pass at most; 0: to be chosen
    unit: int = 1  # sequences that no pass can part, like the two answers of a pair
    checkpointing: tuple[Checkpointing, ...] = _CHECKPOINTING
    pieces: tuple[int, ...] = _PIECES  # of a pipeline's stages


class Candidate(NamedTuple):
    """A layout that fits, and what it will do."""

    layout: Layout
    memory: Memory
    speed: Speed


class Lost(NamedTuple):
    """A family that is not taken; `detail` is a sentence with the figure."""

    layout: Layout
    why: Why
    detail: str


class LayoutPlan(NamedTuple):
    """Families that fit, the fastest first, and the others."""

    machine: Machine
    candidates: list[Candidate]
    lost: list[Lost]

    @property
    def best(self) -> Candidate:
        """The simplest of the fastest. Raises `UserError` with the nearest miss if none fits."""
        if not self.candidates:
            raise UserError(self.nothing_fits)
        return self.candidates[0]

    @property
    def fastest(self) -> Candidate:
        """The fastest, however complicated. Raises `UserError` when nothing fits."""
        first = self.best
        return min(self.candidates, key=lambda item: item.speed.seconds, default=first)

    @property
    def nothing_fits(self) -> str:
        """What is missing where there is no candidate."""
        machine = self.machine
        where = f"{machine.gpus} x {machine.gpu.name} ({machine.memory_gib:g} GiB)"
        near = next((lost for lost in self.lost if lost.why == "too_large"), None)
        if near is None:
            reasons = "; ".join(list(dict.fromkeys(lost.detail for lost in self.lost))[:3])
            return f"no layout can be laid on {where}: {reasons}"
        return (
            f"no layout fits {where}; the nearest is {near.layout.label}: {near.detail}. More "
            "nodes, larger GPUs, a shorter sequence, LoRA or QLoRA would help"
        )


def choose_layout(
    shape: ModelShape,
    job: Job,
    machine: Machine,
    *,
    tensor_link_gbytes: float = TENSOR_LINK_GBYTES,
) -> Candidate:
    """The fastest layout that fits: what `parallelism: auto` stands for.

    Raises `UserError` naming the nearest miss when nothing fits.
    """
    return plan_layouts(shape, job, machine, load(), tensor_link_gbytes=tensor_link_gbytes).best


def plan_layouts(
    shape: ModelShape,
    job: Job,
    machine: Machine,
    constants: Calibration,
    *,
    tensor_link_gbytes: float = TENSOR_LINK_GBYTES,
    limits: Limits = Limits(),  # noqa: B008 - a constant tuple
) -> LayoutPlan:
    """Judge all families of layouts on all GPUs of a machine."""
    candidates: list[Candidate] = []
    too_large: list[tuple[float, Lost]] = []
    others: list[Lost] = []
    for family in _families(shape, job, machine):
        refusal = _refusal(shape, job, family, machine, tensor_link_gbytes, limits)
        if refusal is not None:
            others.append(refusal)
            continue
        found, short = _best_of(shape, job, family, machine, constants, limits)
        if found is not None:
            candidates.append(found)
        else:
            detail = f"does not fit: {short:.1f} GiB short at its smallest"
            too_large.append((short, Lost(family, "too_large", detail)))
    candidates = _ranked(candidates)
    too_large.sort(key=lambda item: (item[0], item[1].layout.label))
    slower = [_slower(candidates[0], item) for item in candidates[1:]]
    return LayoutPlan(machine, candidates, [*slower, *(lost for _, lost in too_large), *others])


def _ranked(candidates: list[Candidate]) -> list[Candidate]:
    """The simplest of the fastest first, then all others by speed."""
    ordered = sorted(candidates, key=lambda item: (item.speed.seconds, _complexity(item.layout)))
    if not ordered:
        return []
    limit = ordered[0].speed.seconds * (1 + _TIE)
    tied = [item for item in ordered if item.speed.seconds <= limit]
    first = min(tied, key=lambda item: _complexity(item.layout))
    return [first, *(item for item in ordered if item is not first)]


def _complexity(layout: Layout) -> tuple[int, int, int, int, str]:
    """Fewer kinds of parallelism, shorter pipelines, narrower tensor groups, plainer states."""
    kinds = sum(size > 1 for size in (layout.tp, layout.pp, layout.cp, layout.ep))
    kinds += layout.shard_group > 0
    return kinds, layout.pp, layout.tp, _PLAIN.index(layout.sharding), layout.label


def _slower(best: Candidate, item: Candidate) -> Lost:
    share = item.speed.seconds / best.speed.seconds - 1
    if share <= _TIE:
        return Lost(item.layout, "slower", f"as fast within {_TIE:.0%}, but less simple")
    return Lost(item.layout, "slower", f"slower: its step takes {share:.1%} longer")


def _powers(limit: int) -> Iterator[int]:
    power = 1
    while power <= limit:
        yield power
        power *= 2


def _families(shape: ModelShape, job: Job, machine: Machine) -> Iterator[Layout]:
    """Degrees and sharding, micro-batch 1."""
    gpus = machine.gpus
    most_tp = min(gpus, 2 * machine.gpus_per_node, shape.heads)
    longest = job.seq_len // (_LONGEST_WITHOUT_CP // 2) if job.seq_len > _LONGEST_WITHOUT_CP else 1
    for tp in _powers(most_tp):
        for pp in _powers(min(gpus // tp, shape.layers, 64)):
            for cp in _powers(min(gpus // (tp * pp), longest)):
                if gpus % (tp * pp * cp):
                    continue
                dp = gpus // (tp * pp * cp)
                for ep in _expert_degrees(shape, dp):
                    for sharding, group in _shardings(job, machine, tp, pp, dp * cp, ep):
                        yield Layout(
                            dp=dp,
                            tp=tp,
                            pp=pp,
                            cp=cp,
                            ep=ep,
                            sharding=sharding,
                            shard_group=group,
                        )


def _expert_degrees(shape: ModelShape, dp: int) -> list[int]:
    if not shape.is_moe:
        return [1]
    return [ep for ep in _powers(min(dp, shape.experts)) if not (dp % ep or shape.experts % ep)]


def _shardings(
    job: Job, machine: Machine, tp: int, pp: int, replicas: int, ep: int
) -> Iterator[tuple[Sharding, int]]:
    yield "none", 0
    if replicas == 1:
        return
    if job.method == "full":
        yield "zero1", 0
        if pp == 1:
            # Stages add up gradients over micro-batches, which sharded ones do not allow.
            yield "zero2", 0
    if ep > 1:
        return
    yield "zero3", 0
    inside = machine.domain // tp
    if 1 < inside < replicas and replicas % inside == 0:
        yield "zero3", inside


def _refusal(
    shape: ModelShape,
    job: Job,
    family: Layout,
    machine: Machine,
    tensor_link_gbytes: float,
    limits: Limits,
) -> Lost | None:
    """Why a family may not be, whatever its size and speed."""
    if family.tp > 1:
        inside = family.tp <= machine.domain
        link = machine.link_gbytes if inside else machine.fabric_gbytes
        if link < tensor_link_gbytes:
            where = "its node" if inside else "several nodes"
            return Lost(
                family,
                "link",
                f"link too slow: tensor parallelism over {where} at {link:g} GB/s, "
                f"{tensor_link_gbytes:g} needed",
            )
    for name, value, degree in (
        ("heads", shape.heads, family.tp),
        ("global batch", job.global_batch, family.dp * limits.unit),
        ("sequence", job.seq_len, family.cp * family.tp),
    ):
        if value % degree:
            return Lost(family, "indivisible", f"{name} {value} does not divide by {degree}")
    if family.tp > shape.kv_heads and family.tp % shape.kv_heads:
        return Lost(family, "indivisible", f"{shape.kv_heads} key heads over {family.tp} GPUs")
    return None


def _variants(shape: ModelShape, job: Job, family: Layout, limits: Limits) -> Iterator[Layout]:
    """Micro-batch, pieces of stages, checkpointing."""
    share = job.global_batch // family.dp
    for micro in _micro_batches(share, limits):
        count = share // micro
        for pieces in limits.pieces:
            whole = shape.layers % (family.pp * pieces) == 0 and count % family.pp == 0
            if pieces > 1 and (family.pp == 1 or not whole):
                continue
            for kept in limits.checkpointing:
                yield replace(family, micro_batch=micro, virtual_stages=pieces, checkpointing=kept)


def _micro_batches(share: int, limits: Limits) -> list[int]:
    """Sequences of a pass: those that divide a replica's share, or what the settings say."""
    if limits.micro_batch:
        return [min(limits.micro_batch, share)]
    sizes = (limits.unit * power for power in _powers(min(share, 64) // limits.unit))
    return [size for size in sizes if share % size == 0]


def _best_of(
    shape: ModelShape,
    job: Job,
    family: Layout,
    machine: Machine,
    constants: Calibration,
    limits: Limits,
) -> tuple[Candidate | None, float]:
    """The fastest variant that fits, or by how many GiB the smallest misses."""
    best: Candidate | None = None
    short = float("inf")
    for layout in _variants(shape, job, family, limits):
        memory = peak_memory(shape, job, layout, constants)
        missing = memory.total - machine.memory_gib
        if missing > 0:
            short = min(short, missing)
            continue
        speed = estimate(shape, job, layout, machine, constants)
        if best is None or speed.seconds < best.speed.seconds:
            best = Candidate(layout, memory, speed)
    return best, short
