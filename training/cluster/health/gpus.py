"""GPUs: present, and free of faults that outlast a job.

Through NVML (the extra `gpu`, PyPI `nvidia-ml-py`) where it can be imported; without it only their
number is known, from the driver's files. Xid errors come from the kernel's log, which root may
read; for others they are unseen, which is not the same as none.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from training.cluster.health.config import NodeLimits
from training.cluster.health.results import Severity, Verdict, combine

_DRIVER = Path("/proc/driver/nvidia/gpus")
# Accelerators of other makers, which are not looked at.
_OTHERS = {"amd": "/dev/kfd", "neuron": "/dev/neuron0", "gaudi": "/dev/accel/accel0"}
_KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)[^)]*\): (\d+)")
# Of nvml.h: nvmlClocksEventReasonHwSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown.
_THROTTLED = {0x08: "hardware slowdown", 0x40: "too hot", 0x80: "power brake"}

_RESET = "reset the GPU (nvidia-smi --gpu-reset) or reboot"
_REPLACE = "reboot; if it comes back, replace the GPU"
# By NVIDIA's catalogue of Xid errors (docs.nvidia.com/deploy/xid-errors), resolution by resolution.
# Those of the application itself (13, 31, 43, 45, 68, 69, ...) say nothing of the node.
XIDS: dict[int, tuple[Severity, str, str]] = {
    46: (Severity.DRAIN, "the GPU stopped processing", _RESET),
    48: (Severity.ISOLATE, "double-bit memory error", _RESET),
    61: (Severity.DRAIN, "internal micro-controller breakpoint", _RESET),
    62: (Severity.ISOLATE, "internal micro-controller halt", _RESET),
    63: (Severity.WARN, "a row of memory was marked for remapping", "reset when the node is idle"),
    64: (Severity.ISOLATE, "a row of memory could not be remapped", _REPLACE),
    74: (Severity.DRAIN, "NVLink error", _RESET),
    79: (Severity.ISOLATE, "the GPU fell off the bus", _REPLACE),
    92: (Severity.WARN, "many single-bit memory errors", ""),
    94: (Severity.WARN, "contained memory error; its job died", "reset when the node is idle"),
    95: (Severity.ISOLATE, "uncontained memory error", _RESET),
    109: (Severity.DRAIN, "context switch timed out", _RESET),
    110: (Severity.DRAIN, "security fault", "reboot"),
    119: (Severity.DRAIN, "the GPU's system processor does not answer", _RESET),
    120: (Severity.DRAIN, "fault in the GPU's system processor", _RESET),
    136: (Severity.DRAIN, "NVLink could not be trained", _RESET),
    140: (Severity.ISOLATE, "unrecovered memory error", _RESET),
    143: (Severity.DRAIN, "the GPU did not start", _RESET),
    149: (Severity.DRAIN, "NVLink error", _RESET),
    155: (Severity.DRAIN, "NVLink went down", _RESET),
    156: (Severity.DRAIN, "a resource was retired", _RESET),
    158: (Severity.ISOLATE, "fatal GPU memory timeout", _RESET),
}


@dataclass(frozen=True)
class Gpu:
    """What NVML says; None or 0 where this GPU does not know such a thing."""

    index: int
    name: str = ""
    bus: str = ""
    uncorrected: int = 0  # memory errors since the driver was loaded
    remap_pending: bool = False
    remap_failed: bool = False
    links_up: int = 0
    links_down: int = 0
    celsius: int | None = None
    throttled: int = 0  # bits of `_THROTTLED`
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    error: str = ""  # NVML lost it


@dataclass(frozen=True)
class Gpus:
    """All of the node. `by` says how they were counted: nvml, driver, "" (no driver), or that they
    are of another maker and were not."""

    by: str
    gpus: tuple[Gpu, ...] = ()
    error: str = ""


def read_gpus() -> Gpus:
    """Ask NVML, else count the driver's files."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        if not _DRIVER.is_dir():
            others = [name for name, device in _OTHERS.items() if Path(device).exists()]
            return Gpus(others[0] if others else "")
        found = sorted(entry.name for entry in _DRIVER.iterdir())
        return Gpus("driver", tuple(Gpu(index, bus=bus) for index, bus in enumerate(found)))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        # Without a driver there is no NVML library either; with one, it refuses to talk.
        return Gpus("nvml" if _DRIVER.is_dir() else "", (), str(error))
    try:
        return Gpus("nvml", tuple(_gpu(nvml, i) for i in range(nvml.nvmlDeviceGetCount())))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(handle)
        bus = nvml.nvmlDeviceGetPciInfo(handle).busId
    except nvml.NVMLError as error:
        return Gpu(index, error=str(error))

    def ask(call: Callable[[], Any], otherwise: Any) -> Any:
        """GeForce cards lack ECC, PCIe cards NVLink, old drivers row remapping."""
        with contextlib.suppress(nvml.NVMLError):
            return call()
        return otherwise

    remapped = ask(lambda: nvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
    links = [
        ask(partial(nvml.nvmlDeviceGetNvLinkState, handle, link), None)
        for link in range(nvml.NVML_NVLINK_MAX_LINKS)
    ]
    return Gpu(
        index,
        _text(name),
        _text(bus),
        int(
            ask(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                ),
                0,
            )
        ),
        bool(remapped[2]),
        bool(remapped[3]),
        sum(link == 1 for link in links),
        sum(link == 0 for link in links),
        ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), None),
        int(ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), 0)),
        ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle), None),
        ask(lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle), None),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def judge_gpus(found: Gpus, expected: int | None, config: NodeLimits) -> Verdict:
    """`expected` None: nobody knows how many there should be."""
    if found.by in _OTHERS:
        return Verdict(Severity.OK, f"accelerators of another maker ({found.by}), not looked at")
    verdicts = [_judge_gpu(gpu, config) for gpu in found.gpus]
    if found.error and (expected or found.by):
        verdicts.append(Verdict(Severity.DRAIN, f"NVML: {found.error}", "reload the driver"))
    usable = sum(not gpu.error for gpu in found.gpus)
    if expected is not None and usable < expected:
        verdicts.append(Verdict(Severity.DRAIN, f"{usable} of {expected} GPUs answer", _REPLACE))
    if len({gpu.links_up for gpu in found.gpus}) > 1:
        counts = ", ".join(str(gpu.links_up) for gpu in found.gpus)
        verdicts.append(
            Verdict(Severity.DRAIN, f"GPUs have unequal numbers of NVLinks: {counts}", _RESET)
        )
    how = f" (counted by {found.by})" if found.by else ""
    return combine(verdicts, f"{usable} GPU(s){how}")


def _judge_gpu(gpu: Gpu, config: NodeLimits) -> Verdict:
    name = f"GPU {gpu.index}"
    if gpu.error:
        return Verdict(Severity.ISOLATE, f"{name} is lost: {gpu.error}", _REPLACE)
    found = []
    if gpu.remap_failed:
        found.append(Verdict(Severity.ISOLATE, f"{name}: row remapping failed", _REPLACE))
    if gpu.uncorrected:
        found.append(
            Verdict(
                Severity.ISOLATE, f"{name}: {gpu.uncorrected} uncorrected memory errors", _RESET
            )
        )
    if gpu.links_up and gpu.links_down:
        found.append(Verdict(Severity.DRAIN, f"{name}: {gpu.links_down} NVLinks down", _RESET))
    if gpu.remap_pending:
        found.append(Verdict(Severity.WARN, f"{name}: row remapping pending", _RESET))
    if gpu.celsius is not None and gpu.celsius > config.max_gpu_celsius:
        found.append(Verdict(Severity.WARN, f"{name}: {gpu.celsius} °C", "look at the cooling"))
    reasons = [text for bit, text in _THROTTLED.items() if gpu.throttled & bit]
    if reasons:
        found.append(Verdict(Severity.WARN, f"{name}: slowed down, {', '.join(reasons)}"))
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        found.append(
            Verdict(
                Severity.WARN,
                f"{name}: PCIe x{gpu.pcie_width} instead of x{gpu.pcie_width_max}",
                "reseat it",
            )
        )
    return combine(found, name)


@dataclass(frozen=True)
class Xid:
    """A line of the kernel's log. `age_s` counts from now back."""

    bus: str
    code: int
    age_s: float


def read_xids() -> list[Xid] | None:
    """Xid errors in the kernel's log; None where it cannot be read.

    Opening it tells more than its permissions: without CAP_SYSLOG the kernel refuses root as well.
    """
    try:
        descriptor = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    lines: list[str] = []
    try:
        while True:
            # A record a read; EPIPE: overwritten meanwhile, the next read goes on behind it.
            try:
                record = os.read(descriptor, 8192)
                if not record:
                    return None  # it has no end: this is another file, as in some containers
                lines.append(record.decode("utf-8", "replace"))
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue
            except OSError:
                return None
    finally:
        os.close(descriptor)
    return parse_xids(lines, time.clock_gettime(time.CLOCK_MONOTONIC))


def parse_xids(lines: Iterable[str], now_s: float) -> list[Xid]:
    """Records of /dev/kmsg: `priority,sequence,microseconds since boot,flags;text`."""
    found = []
    for line in lines:
        head, _, text = line.partition(";")
        match = _XID.search(text)
        if match:
            age_s = now_s - int(head.split(",")[2]) / 1e6
            found.append(Xid(match[1], int(match[2]), age_s))
    return found


def judge_xids(xids: list[Xid] | None, config: NodeLimits) -> Verdict:
    """`xids` None: nobody could look."""
    if xids is None:
        return Verdict(
            Severity.UNSEEN,
            "not looked at: the kernel's log cannot be read here",
            "let root check it, as Slurm's HealthCheckProgram does",
        )
    recent = {
        (xid.bus, xid.code)
        for xid in xids
        if xid.age_s <= config.xid_hours * 3600 and xid.code in XIDS
    }
    verdicts = [
        Verdict(XIDS[code][0], f"GPU {bus}: Xid {code}, {XIDS[code][1]}", XIDS[code][2])
        for bus, code in sorted(recent)
    ]
    return combine(verdicts, f"none in {config.xid_hours:g} h")
