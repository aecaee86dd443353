"""What a site expects of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from workspace.config import StageConfig

Percent = float


class HealthConfig(StageConfig):
    """Thresholds of the health checks; every field has a default that suits most nodes.

    Shipped as YAML: `python -m training.cluster.health --config health.yaml`.
    """

    disks: tuple[Path, ...] = Field(
        (Path("/"), Path("/tmp"), Path("/dev/shm")),  # noqa: S108 - looked at, not written to
        description="file systems of the node itself; those that do not exist are skipped",
    )
    shared: tuple[Path, ...] = Field(
        (), description="folders on shared file systems in which a small file is written and read"
    )
    mounts: tuple[Path, ...] = Field(
        (), description="mount points that must be there (else jobs would fill the node's own disk)"
    )
    timeout_s: float = Field(20.0, gt=0, le=600, description="of each check, before it is killed")
    warn_free_percent: Percent = Field(10.0, ge=0, le=100, description="of space and of inodes")
    min_free_percent: Percent = Field(2.0, ge=0, le=100, description="below: drain")
    shared_slow_s: float = Field(
        5.0, gt=0, description="a write, fsync, rename and read of 64 KiB takes this long: warn"
    )
    min_memory_gib: float = Field(0.0, ge=0, description="installed; below: drain (0: any)")
    min_available_memory_percent: Percent = Field(3.0, ge=0, le=100, description="below: warn")
    cpus: int = Field(0, ge=0, description="that are online; fewer: drain (0: any number)")
    min_cpu_mhz: float = Field(
        0.0, ge=0, description="highest frequency that a core may reach; below: warn (0: any)"
    )
    clock_warn_s: float = Field(1.0, gt=0, description="off from the file server or from NTP")
    clock_drain_s: float = Field(30.0, gt=0, description="off by this much: drain")
    max_zombies: int = Field(200, ge=0, description="more: warn")
    stuck_look_s: float = Field(
        1.0, ge=0, le=10, description="a process uninterruptible at both ends of this is stuck"
    )
    gpus: int | None = Field(None, ge=0, description="expected; null: as the node's gres says")
    max_gpu_celsius: int = Field(90, ge=1, le=200, description="hotter: warn")
    xid_hours: float = Field(24.0, ge=0, description="how far back Xid errors count")
    isolate_state: Literal["DRAIN", "DOWN", "FAIL"] = Field(
        "DRAIN", description="of a node whose results cannot be trusted; DOWN ends its jobs"
    )
    isolate_reason: str = Field(
        "",
        max_length=100,
        description="to set then instead of ours, where a service acts on it (HyperPod: "
        "Action:Replace or Action:Reboot); such a node is not released by the checks",
    )
    dcgm_level: int = Field(
        0, ge=0, le=4, description="dcgmi diag -r LEVEL (0: not run; 1 takes seconds, 2 minutes)"
    )
