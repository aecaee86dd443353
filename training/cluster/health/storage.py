"""Disks, mounts and shared file systems.

Writing beats looking: a full, read-only or dead file system is found by the failing call, and one
that never answers by the time limit that `timed` puts on it.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from training.cluster.health.config import NodeLimits
from training.cluster.health.results import Severity, Verdict, combine

_PROBE_BYTES = 64 << 10


@dataclass(frozen=True)
class Disk:
    """One file system. `inodes` is 0 where it has no fixed number, all are 0 where it is absent."""

    path: str
    bytes_total: int
    bytes_free: int
    inodes: int
    inodes_free: int
    read_only: bool


def read_disk(path: Path) -> Disk:
    try:
        state = os.statvfs(path)
    except FileNotFoundError:
        return Disk(str(path), 0, 0, 0, 0, False)
    return Disk(
        str(path),
        state.f_blocks * state.f_frsize,
        state.f_bavail * state.f_frsize,
        state.f_files,
        state.f_favail,
        bool(state.f_flag & os.ST_RDONLY),
    )


def judge_disk(disk: Disk, config: NodeLimits) -> Verdict:
    if disk.read_only:
        return Verdict(
            Severity.DRAIN, f"{disk.path} is read-only", "look for I/O errors in dmesg, remount"
        )
    if not disk.bytes_total:
        return Verdict(Severity.OK, f"{disk.path} is not there")
    space = 100 * disk.bytes_free / disk.bytes_total
    inodes = 100 * disk.inodes_free / disk.inodes if disk.inodes else 100.0
    found = [
        _judge_free(disk.path, free, kind, config)
        for free, kind in ((space, "space"), (inodes, "inodes"))
    ]
    return combine(found, f"{disk.path} {space:.0f} % free")


def _judge_free(path: str, free: float, kind: str, config: NodeLimits) -> Verdict:
    detail = f"{path}: {free:.1f} % of {kind} free"
    if free < config.min_free_percent:
        return Verdict(Severity.DRAIN, detail, "remove what ended jobs left")
    if free < config.warn_free_percent:
        return Verdict(Severity.WARN, detail, "remove what ended jobs left")
    return Verdict(Severity.OK, detail)


def read_mounts() -> list[str]:
    """Mount points of this machine."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    # The kernel writes blanks in names as \040.
    return [line.split()[1].replace("\\040", " ") for line in lines]


def judge_mounts(present: list[str], config: NodeLimits) -> Verdict:
    missing = [str(path) for path in config.mounts if str(path) not in present]
    if missing:
        return Verdict(
            Severity.DRAIN, f"not mounted: {', '.join(missing)}", "mount it; see /etc/fstab"
        )
    return Verdict(Severity.OK, f"{len(config.mounts)} mounted")


@dataclass(frozen=True)
class Shared:
    """A write to a shared folder: how long it took, how it failed, how far the clocks differ."""

    path: str
    seconds: float = 0.0
    error: str = ""
    clock_offset_s: float = 0.0  # the file server's clock minus ours, as modification times say


def read_shared(folder: Path) -> Shared:
    """Write, fsync, rename, list, read back and remove a small file."""
    started = time.monotonic()
    name = f".dsm-health-{socket.gethostname()}-{secrets.token_hex(6)}"
    temporary, target = folder / f"{name}.tmp", folder / name
    data = secrets.token_bytes(_PROBE_BYTES)
    try:
        wrote_at = time.time()
        _write_through(temporary, data)
        temporary.rename(target)
        modified_at = target.stat().st_mtime
        if target not in folder.iterdir():
            return Shared(str(folder), time.monotonic() - started, "a new file is not listed")
        if target.read_bytes() != data:
            return Shared(str(folder), time.monotonic() - started, "read other bytes than written")
        seconds = time.monotonic() - started
        # A slow write makes the time of the write uncertain by as much.
        offset_s = modified_at - wrote_at
        uncertain = -0.1 <= offset_s <= seconds + 0.1
        return Shared(str(folder), seconds, "", 0.0 if uncertain else offset_s)
    except OSError as error:
        return Shared(str(folder), time.monotonic() - started, error.strerror or str(error))
    finally:
        for path in (temporary, target):
            _remove(path)


def _write_through(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # Of a folder that could not be written either, which is reported.
        return


def judge_shared(shared: Shared, config: NodeLimits) -> Verdict:
    if shared.error:
        return Verdict(
            Severity.DRAIN,
            f"{shared.path}: {shared.error}",
            "look at the mount and at the file server",
        )
    found = []
    if shared.seconds >= config.shared_slow_s:
        found.append(
            Verdict(Severity.WARN, f"{shared.path}: {shared.seconds:.1f} s for a small file")
        )
    offset = abs(shared.clock_offset_s)
    if offset >= config.clock_warn_s:
        severity = Severity.DRAIN if offset >= config.clock_drain_s else Severity.WARN
        found.append(
            Verdict(
                severity,
                f"{shared.path}: the file server's clock differs by {shared.clock_offset_s:+.1f} s",
                "synchronise both to one time server",
            )
        )
    return combine(found, f"{shared.path} in {shared.seconds:.2f} s")
