"""What is expected of nodes: the limits of the checks, and when a run makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from workspace.config import StageConfig, setting

CheckName = Literal[
    "memory", "cpu", "clock", "processes", "disk", "mounts", "shared", "gpus", "xid", "dcgm"
]


class NodeLimits(StageConfig):
    """Limits of each check of a node; every field has a default that suits most nodes."""

    skip: tuple[CheckName, ...] = setting(
        (),
        position=1,
        description="checks that are not made: memory, cpu, clock, processes, disk, mounts, "
        "shared, gpus, xid, dcgm",
        affects_output=False,
    )
    disks: tuple[Path, ...] = setting(
        (Path("/"), Path("/tmp"), Path("/dev/shm")),  # noqa: S108 - looked at, not written to
        position=2,
        description="file systems of the node itself; those that do not exist are skipped",
        affects_output=False,
    )
    shared: tuple[Path, ...] = setting(
        (),
        position=3,
        description="folders on shared file systems in which a small file is written and read",
        affects_output=False,
    )
    mounts: tuple[Path, ...] = setting(
        (),
        position=4,
        description="mount points that must be there (else jobs would fill the node's own disk)",
        affects_output=False,
    )
    timeout_s: float = setting(
        20.0,
        position=5,
        gt=0,
        le=600,
        description="of each check, before it is killed",
        affects_output=False,
    )
    warn_free_percent: float = setting(
        10.0,
        position=6,
        ge=0,
        le=100,
        description="of space and of inodes; below: warn",
        affects_output=False,
    )
    min_free_percent: float = setting(
        2.0,
        position=7,
        ge=0,
        le=100,
        description="of space and of inodes; below: drain",
        affects_output=False,
    )
    shared_slow_s: float = setting(
        5.0,
        position=8,
        gt=0,
        description="a write, fsync, rename and read of 64 KiB takes this long: warn",
        affects_output=False,
    )
    min_memory_gib: float = setting(
        0.0, position=9, ge=0, description="installed; below: drain (0: any)", affects_output=False
    )
    min_available_memory_percent: float = setting(
        3.0, position=10, ge=0, le=100, description="below: warn", affects_output=False
    )
    cpus: int = setting(
        0,
        position=11,
        ge=0,
        description="that are online; fewer: drain (0: any number)",
        affects_output=False,
    )
    min_cpu_mhz: float = setting(
        0.0,
        position=12,
        ge=0,
        description="highest frequency that a core may reach; below: warn (0: any)",
        affects_output=False,
    )
    clock_warn_s: float = setting(
        1.0,
        position=13,
        gt=0,
        description="off from the file server or from NTP: warn",
        affects_output=False,
    )
    clock_drain_s: float = setting(
        30.0, position=14, gt=0, description="off by this much: drain", affects_output=False
    )
    max_zombies: int = setting(
        200, position=15, ge=0, description="more: warn", affects_output=False
    )
    stuck_look_s: float = setting(
        1.0,
        position=16,
        ge=0,
        le=10,
        description="a process uninterruptible at both ends of this is stuck",
        affects_output=False,
    )
    gpus: int | None = setting(
        None,
        position=17,
        ge=0,
        description="expected; null: as the node's gres says, in a run its gpus_per_node",
        affects_output=False,
    )
    max_gpu_celsius: int = setting(
        90, position=18, ge=1, le=200, description="hotter: warn", affects_output=False
    )
    xid_hours: float = setting(
        24.0, position=19, ge=0, description="how far back Xid errors count", affects_output=False
    )
    dcgm_level: int = setting(
        0,
        position=20,
        ge=0,
        le=4,
        description="dcgmi diag -r LEVEL (0: not run; 1 takes seconds, 2 minutes)",
        affects_output=False,
    )


class HealthConfig(NodeLimits):
    """What a site tells Slurm's programs: `python -m training.cluster.health --config FILE`."""

    isolate_state: Literal["DRAIN", "DOWN", "FAIL"] = setting(
        "DRAIN",
        position=21,
        description="of a node whose results cannot be trusted; DOWN ends its jobs",
        affects_output=False,
    )
    isolate_reason: str = setting(
        "",
        position=22,
        max_length=100,
        description="to set then instead of ours, where a service acts on it (HyperPod: "
        "Action:Replace or Action:Reboot); such a node is not released by the checks",
        affects_output=False,
    )


class LinkLimits(StageConfig):
    """The pairwise all-reduce before a job's ranks start."""

    enabled: bool = setting(
        True,
        position=1,
        description="let each node of a job of several exchange an all-reduce with two others",
        affects_output=False,
    )
    mib: int = setting(
        64, position=2, ge=1, le=8192, description="MiB of each all-reduce", affects_output=False
    )
    repeats: int = setting(
        5,
        position=3,
        ge=1,
        le=1000,
        description="all-reduces of a pair, of which the fastest counts",
        affects_output=False,
    )
    least_gbytes: float = setting(
        0.0,
        position=4,
        ge=0,
        description="GB/s (bytes over seconds) below which a link is slow (0: see least_share)",
        affects_output=False,
    )
    least_share: float = setting(
        0.5,
        position=5,
        ge=0,
        lt=1,
        description="of what most nodes reach, below which a link is slow (0: not compared)",
        affects_output=False,
    )
    timeout_s: float = setting(
        120.0,
        position=6,
        gt=0,
        le=3600,
        description="for a pair to start, meet and exchange, after which its link is dead",
        affects_output=False,
    )


class HealthSettings(StageConfig):
    """What a run's nodes check of themselves and of the links between them."""

    enabled: bool = setting(
        True,
        position=1,
        description="let each node check itself before it trains: an unfit one is replaced by a "
        "spare or by the next attempt",
        affects_output=False,
    )
    every_s: float = setting(
        600.0,
        position=2,
        ge=0,
        description="seconds between the checks while it trains (0: only before)",
        affects_output=False,
    )
    limits: NodeLimits = setting(
        NodeLimits(), position=3, description="of the checks", affects_output=False
    )
    links: LinkLimits = setting(
        LinkLimits(), position=4, description="all-reduce between pairs", affects_output=False
    )
