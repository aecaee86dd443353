"""Memory, processors and clock: what they are, and what that means.

Read from /proc, /sys and the kernel's clock discipline (adjtimex(2)).
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from training.cluster.health.config import NodeLimits
from training.cluster.health.results import Severity, Verdict, combine

_EDAC = Path("/sys/devices/system/edac/mc")
_CPUS = Path("/sys/devices/system/cpu")
_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
# Of adjtimex(2): the clock is not disciplined by anybody; times are in nanoseconds.
_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000
# Read in user space. With the others each look at the clock is a system call, some to a slow bus.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource", "arch_sys_counter", "timebase", "xen")


@dataclass(frozen=True)
class Memory:
    """Of the whole machine."""

    total_kib: int
    available_kib: int
    uncorrected: int = 0  # errors that the memory controllers count since boot
    corrected: int = 0


def read_memory() -> Memory:
    values = dict(re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
    return Memory(
        int(values["MemTotal"]),
        int(values["MemAvailable"]),
        _sum_counters(_EDAC, "mc*/ue_count"),
        _sum_counters(_EDAC, "mc*/ce_count"),
    )


def judge_memory(memory: Memory, config: NodeLimits) -> Verdict:
    total_gib = memory.total_kib / 2**20
    available = 100 * memory.available_kib / memory.total_kib
    found = []
    if total_gib < config.min_memory_gib:
        found.append(
            Verdict(
                Severity.DRAIN,
                f"{total_gib:.1f} GiB installed, {config.min_memory_gib:g} expected",
                "a module failed: replace it",
            )
        )
    if memory.uncorrected:
        found.append(
            Verdict(
                Severity.ISOLATE,
                f"{memory.uncorrected} uncorrected memory errors since boot",
                "replace the module that `edac-util` names",
            )
        )
    if available < config.min_available_memory_percent:
        found.append(Verdict(Severity.WARN, f"{available:.1f} % of memory is available"))
    return combine(found, f"{total_gib:.1f} GiB, {available:.0f} % available")


@dataclass(frozen=True)
class Processors:
    """`max_mhz` is the slowest core's highest frequency, None where the kernel does not say."""

    online: int
    max_mhz: float | None = None
    governors: tuple[str, ...] = ()


def read_processors() -> Processors:
    limits = [_number(path) for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_max_freq")]
    known = [limit / 1000 for limit in limits if limit]
    governors = {p.read_text().strip() for p in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return Processors(
        os.sysconf("SC_NPROCESSORS_ONLN"), min(known, default=None), tuple(sorted(governors))
    )


def judge_processors(processors: Processors, config: NodeLimits) -> Verdict:
    found = []
    if processors.online < config.cpus:
        found.append(
            Verdict(
                Severity.DRAIN,
                f"{processors.online} CPUs are online, {config.cpus} expected",
                "look for offlined cores (machine checks) in dmesg",
            )
        )
    if processors.max_mhz is not None and processors.max_mhz < config.min_cpu_mhz:
        found.append(
            Verdict(
                Severity.WARN,
                f"a core is limited to {processors.max_mhz:.0f} MHz, "
                f"{config.min_cpu_mhz:.0f} expected",
                "look at power capping and temperature",
            )
        )
    if "powersave" in processors.governors and config.min_cpu_mhz:
        found.append(Verdict(Severity.WARN, "frequency governor powersave"))
    speed = "" if processors.max_mhz is None else f", up to {processors.max_mhz:.0f} MHz"
    return combine(found, f"{processors.online} CPUs{speed}")


@dataclass(frozen=True)
class Clock:
    """`error_s` is the kernel's bound on its error, None when nothing disciplines the clock."""

    synchronised: bool
    error_s: float | None
    source: str


def read_clock() -> Clock:
    status, error_us = _adjtimex()
    synchronised = not status & _STA_UNSYNC
    source = _CLOCKSOURCE.read_text().strip() if _CLOCKSOURCE.exists() else ""
    return Clock(synchronised, error_us / 1e6 if synchronised else None, source)


def judge_clock(clock: Clock, config: NodeLimits) -> Verdict:
    found = []
    if not clock.synchronised:
        found.append(
            Verdict(Severity.WARN, "the clock is not synchronised", "start chronyd or timesyncd")
        )
    elif clock.error_s is not None and clock.error_s >= config.clock_drain_s:
        found.append(Verdict(Severity.DRAIN, f"the clock may be {clock.error_s:.1f} s off"))
    elif clock.error_s is not None and clock.error_s >= config.clock_warn_s:
        found.append(Verdict(Severity.WARN, f"the clock may be {clock.error_s:.1f} s off"))
    if clock.source and not clock.source.startswith(_FAST_CLOCKS):
        found.append(
            Verdict(
                Severity.WARN,
                f"clock source {clock.source}, which is slow to read",
                "the kernel distrusts the TSC: look in dmesg",
            )
        )
    return combine(found, f"synchronised to {clock.error_s or 0:.3f} s, source {clock.source}")


class _Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2) as far as it is read, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def _adjtimex() -> tuple[int, int]:
    """Status bits and maximal error in microseconds; changes nothing (modes is 0)."""
    state = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return int(state.status), int(state.maxerror)


def _sum_counters(folder: Path, pattern: str) -> int:
    return sum(_number(path) for path in folder.glob(pattern))


def _number(path: Path) -> int:
    """A file with one number; 0 where the kernel has none to give."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
