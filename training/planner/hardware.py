"""GPUs and the clusters made of them.

    gpu = find_gpu("H100_80GB")                       # gpus.yaml, aliases and notes in () ignored
    cluster = Cluster(groups=(GpuGroup(gpu="H100", nodes=4),))

A cluster is a list of groups of equal nodes. Sizes are GiB, bandwidths GB/s in one direction.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from workspace.config import StageConfig, read_yaml, setting
from workspace.errors import UserError

GPUS: Final = Path(__file__).with_name("gpus.yaml")
Family = Literal["ampere", "hopper", "blackwell", "blackwell_ultra"]


class Gpu(StageConfig):
    """A GPU by its data sheet."""

    name: str
    family: Family = Field(description="whose measured efficiencies apply")
    memory_gib: float = Field(gt=0, le=4096)
    tflops: dict[Literal["bf16", "fp8", "fp4"], float] = Field(description="dense, by arithmetic")
    memory_gbytes: float = Field(gt=0, le=1e6, description="memory bandwidth, GB/s")
    link_gbytes: float = Field(gt=0, le=1e5, description="link to its neighbours, GB/s one way")
    fabric_gbytes: float = Field(gt=0, le=1e5, description="link to other nodes, GB/s one way")
    domain: int = Field(ge=1, le=1024, description="GPUs that the fast link joins")
    gpus_per_node: int = Field(8, ge=1, le=1024)
    power_share: float = Field(1.0, gt=0, le=1, description="power limit over the part's usual one")


@cache
def _known() -> dict[str, Gpu]:
    found: dict[str, Gpu] = {}
    for name, given in read_yaml(GPUS).items():
        aliases = given.pop("aliases", [])
        gpu = Gpu.parse({"name": name, **given}, origin=f"{GPUS.name}: {name}")
        for alias in (name, *aliases):
            found[_compared(alias)] = gpu
    return found


def _compared(name: str) -> str:
    name = re.sub(r"\([^()]{0,200}\)|\b\d+ ?W\b", "", name)
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia")


def gpu_names() -> list[str]:
    """Names that `find_gpu` knows."""
    return sorted({gpu.name for gpu in _known().values()})


def find_gpu(name: str) -> Gpu:
    """A GPU by name. Raises `UserError` with the known names."""
    gpu = _known().get(_compared(name))
    if gpu is None:
        raise UserError(f"GPU {name!r} is not known: {', '.join(gpu_names())}")
    return gpu


def gpu_of_device(name: str) -> Gpu | None:
    """The GPU that a driver calls `name` ("NVIDIA H100 80GB HBM3"); None without its data sheet.

    PCIe and NVL cards are other parts with other peaks than the modules of the same number.
    """
    return _known().get(_compared(re.sub(r"\b(SXM\d|HBM\d\w?|GeForce|RTX(?= A))\b", "", name)))


class GpuGroup(StageConfig):
    """Equal nodes of a cluster."""

    gpu: str = setting("H100", position=0, description="GPU type, see gpus.yaml")
    nodes: int = setting(1, position=1, ge=1, le=100_000, description="nodes")
    gpus_per_node: int | None = setting(
        None, position=2, ge=1, le=1024, description="GPUs in a node (none: as usually sold)"
    )
    memory_gib: float | None = setting(
        None, position=3, gt=0, le=4096, description="memory of a GPU in GiB (none: data sheet)"
    )
    link_gbytes: float | None = setting(
        None,
        position=4,
        gt=0,
        le=1e5,
        description="bandwidth of a GPU to its neighbours in the node, GB/s in one direction "
        "(none: data sheet)",
    )
    fabric_gbytes: float | None = setting(
        None,
        position=5,
        gt=0,
        le=1e5,
        description="bandwidth of a GPU to other nodes, GB/s in one direction; a 400 Gb/s port "
        "is 50 (none: as usually sold)",
    )
    domain: int | None = setting(
        None, position=6, ge=1, le=1024, description="GPUs joined by the fast link (none: the node)"
    )
    price_per_gpu_hour: float | None = setting(
        None, position=7, ge=0, le=1e6, description="price of a GPU for an hour, any currency"
    )

    def model_post_init(self, context: object) -> None:
        """Refuse an unknown GPU when the group is described, not when it is first used."""
        find_gpu(self.gpu)


class Cluster(StageConfig):
    """The YAML file of a cluster: `groups`, each of equal nodes."""

    groups: tuple[GpuGroup, ...] = Field(min_length=1, max_length=64)


class Machine(StageConfig):
    """Equal nodes with every figure resolved: what a layout is laid on."""

    gpu: Gpu
    nodes: int
    gpus_per_node: int
    memory_gib: float
    link_gbytes: float
    fabric_gbytes: float
    domain: int
    price_per_gpu_hour: float | None = None
    fabric_measured: str = Field(
        "", description="day on which collectives reached fabric_gbytes; empty: as described"
    )

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    def with_nodes(self, nodes: int) -> Machine:
        """The same nodes, another number of them."""
        return self.model_copy(update={"nodes": nodes})


def machine_of(group: GpuGroup) -> Machine:
    """A group's figures, the GPU's data sheet filling what it leaves out."""
    gpu = find_gpu(group.gpu)
    per_node = group.gpus_per_node or gpu.gpus_per_node
    # A rack-wide link reaches over nodes; any other ends at the node's border.
    rack = gpu.domain if gpu.domain > gpu.gpus_per_node else per_node
    return Machine(
        gpu=gpu,
        nodes=group.nodes,
        gpus_per_node=per_node,
        memory_gib=group.memory_gib or gpu.memory_gib,
        link_gbytes=group.link_gbytes or gpu.link_gbytes,
        fabric_gbytes=group.fabric_gbytes or gpu.fabric_gbytes,
        domain=group.domain or rack,
        price_per_gpu_hour=group.price_per_gpu_hour,
    )
