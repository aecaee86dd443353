"""The memory of a rank, watched: a leak is told early, and a restart comes before the limit.

    watch = MemoryWatch(attempt_dir, rank=0, settings=MemorySettings(), gpu=False)
    watch.after_step(step, total_steps)      # after each optimizer step
    if watch.wants_restart: ...              # checkpoint, exit 75; the next attempt goes on

Each rank appends to `attempts/<n>/memory/rank-0000.jsonl`: a sample now and then, and notices. Host
memory is what the kernel cannot take back (anonymous and shared pages) of the rank and all that it
started. The limit is the smallest of the setting, the cgroup's and Slurm's, or else the machine's
memory, shared by the ranks of the node.

**A leak** is a floor that rises. Peaks say little: steps of other lengths move gigabytes. So the
least memory of each of 32 blocks of steps is looked at, with the Theil-Sen slope and its 99 %
interval, for blocks of 4, 16, 128 and 1024 steps: slow leaks show in long blocks. It must rise
throughout (from each quarter to the next at half of the whole slope), by several times its scatter
and enough to matter, and fast enough to reach the share of the limit before the last step.

**A restart** is only asked for when it helps: most of what is held now was taken since the start.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from training.trainers.shared_settings import MemorySettings
from workspace.memory import trim_heap

FOLDER_NAME: Final = "memory"  # in the attempt's folder
WARM_UP_STEPS: Final = 20
BLOCKS: Final = 32
BLOCK_STEPS: Final = (4, 16, 128, 1024)
SAMPLE_EVERY_S: Final = 15.0  # many ranks share a file system
_TAIL_BYTES: Final = 4096
_LEAST_GROWTH: Final = 32 << 20
_LEAST_GROWTH_SHARE: Final = 0.01
_SPREADS: Final = 6.0  # standard deviations of the floors around the line
_QUARTER_SHARE: Final = 0.5  # of the whole slope, from each quarter to the next
_GPU_RESTART_SHARE: Final = 0.95  # a GPU is meant to be full
_HELPS_FROM: Final = 0.25  # of what is held, taken since the start


class Usage(NamedTuple):
    """Bytes of this rank now; the peak is since the rank began."""

    host: int
    gpu_allocated: int = 0
    gpu_reserved: int = 0
    gpu_peak: int = 0
    gpu_total: int = 0

    @property
    def fragmentation(self) -> float:
        """Share of what the allocator holds of the GPU that no tensor lies in."""
        return 1 - self.gpu_allocated / self.gpu_reserved if self.gpu_reserved else 0.0

    def as_metrics(self) -> dict[str, float]:
        """For a line of the metrics file."""
        if not self.gpu_total:
            return {"host": float(self.host)}
        return {
            "host": float(self.host),
            "gpu_allocated": float(self.gpu_allocated),
            "gpu_reserved": float(self.gpu_reserved),
            "gpu_peak": float(self.gpu_peak),
        }


@dataclass(frozen=True)
class Notice:
    """Something to tell people. `event` is memory_leak, memory_restart or memory_short."""

    time: float
    event: str
    rank: int
    step: int
    detail: str


class LeakDetector:
    """Says how many bytes a step the floor rises, over the last 32 blocks of `block_steps`."""

    def __init__(self, block_steps: int) -> None:
        self._block_steps = block_steps
        self._floors: deque[int] = deque(maxlen=BLOCKS)
        self._steps = 0
        self._floor = 0

    def add(self, used: int) -> float:
        """Take one more step's memory; returns the slope when a block ends and it leaks, else 0."""
        self._floor = min(self._floor, used) if self._steps else used
        self._steps += 1
        if self._steps < self._block_steps:
            return 0.0
        self._steps = 0
        self._floors.append(self._floor)
        return self._slope() / self._block_steps if len(self._floors) == BLOCKS else 0.0

    def _slope(self) -> float:
        """Bytes a block, 0 when it is no leak."""
        floors = list(self._floors)
        enough = max(_LEAST_GROWTH, _LEAST_GROWTH_SHARE * floors[0])
        if floors[-1] - floors[0] < enough:  # without this the statistics would be asked each time
            return 0.0
        from scipy.stats import median_abs_deviation, theilslopes

        slope, start, low, _ = theilslopes(floors, alpha=0.99)
        spread = median_abs_deviation(
            [floor - start - slope * at for at, floor in enumerate(floors)], scale="normal"
        )
        if low <= 0 or slope * BLOCKS < max(enough, _SPREADS * spread):
            return 0.0
        quarter = BLOCKS // 4
        middles = [median(floors[at : at + quarter]) for at in range(0, BLOCKS, quarter)]
        throughout = all(b - a >= _QUARTER_SHARE * slope * quarter for a, b in pairwise(middles))
        return float(slope) if throughout else 0.0


class MemoryWatch:
    """Of one rank. `after_step` costs about a tenth of a millisecond."""

    def __init__(
        self,
        attempt_dir: Path,
        *,
        rank: int,
        settings: MemorySettings,
        gpu: bool,
        limit: int | None = None,
    ) -> None:
        self.path = attempt_dir / FOLDER_NAME / f"rank-{rank:04d}.jsonl"
        self.limit = limit or memory_limit(settings.limit_gib)
        self.usage = Usage(0)
        self.wants_restart = False
        self._rank = rank
        self._share = settings.restart_share
        self._gpu = gpu
        self._steps = 0
        self._base: Usage | None = None
        self._host = [LeakDetector(steps) for steps in BLOCK_STEPS]
        self._device = [LeakDetector(steps) for steps in BLOCK_STEPS]
        self._told: set[str] = set()
        self._sampled = 0.0
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def after_step(self, step: int, total_steps: int) -> None:
        """Look at the memory after `step`; notices go to the rank's file."""
        self.usage = usage = current_usage(gpu=self._gpu)
        self._steps += 1
        if time.monotonic() - self._sampled >= SAMPLE_EVERY_S:
            self._sampled = time.monotonic()
            self._write({"time": time.time(), "step": step, **usage._asdict()})
        if self._steps <= WARM_UP_STEPS:
            least = self._base or usage
            self._base = usage if usage.host <= least.host else least
        else:
            self._look_for_leak(step, total_steps)
        self._look_at_limit(step)

    def _look_for_leak(self, step: int, total_steps: int) -> None:
        usage, left = self.usage, total_steps - step
        slope = max(detector.add(usage.host) for detector in self._host)
        if slope and usage.host + slope * left > (self._share or 1.0) * self.limit:
            self._tell(step, "memory_leak", "host", _leak("host", usage.host, slope, self.limit))
        if not usage.gpu_total:
            return
        slope = max(detector.add(usage.gpu_allocated) for detector in self._device)
        if slope and usage.gpu_peak + slope * left > usage.gpu_total:
            said = _leak("GPU", usage.gpu_peak, slope, usage.gpu_total)
            self._tell(step, "memory_leak", "gpu", said)

    def _look_at_limit(self, step: int) -> None:
        if not self._share or self.wants_restart:
            return
        leaks = "memory_leak:gpu" in self._told
        if self.usage.host >= self._share * self.limit and "memory_short:host" not in self._told:
            # Free pages that the allocator keeps for the next step are no need of memory.
            trim_heap()
            self.usage = current_usage(gpu=self._gpu)
        usage = self.usage
        if usage.host >= self._share * self.limit:
            held = f"holds {_gib(usage.host)} of {_gib(self.limit)} of host memory"
            if self._base is not None and _helps(self._base.host, usage.host, self._steps):
                self._restart(step, held)
            elif self._steps > WARM_UP_STEPS:
                self._tell(
                    step,
                    "memory_short",
                    "host",
                    f"{held}, nearly all of it since the start, so that a restart would not help: "
                    "ask for more memory, or lower the tokens of a forward pass",
                )
        elif leaks and usage.gpu_peak >= _GPU_RESTART_SHARE * usage.gpu_total:
            self._restart(step, f"holds {_gib(usage.gpu_peak)} of {_gib(usage.gpu_total)} of a GPU")

    def _restart(self, step: int, held: str) -> None:
        self.wants_restart = True
        self._tell(step, "memory_restart", "", f"{held}: saves and starts again before the limit")

    def _tell(self, step: int, event: str, what: str, detail: str) -> None:
        """Once for each thing: a line each step would bury the log."""
        if f"{event}:{what}" in self._told:
            return
        self._told.add(f"{event}:{what}")
        self._write(asdict(Notice(time.time(), event, self._rank, step, detail)))

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def _helps(base: int, now: int, steps: int) -> bool:
    return steps > WARM_UP_STEPS and now - base >= _HELPS_FROM * now


def _leak(what: str, used: int, slope: float, limit: int) -> str:
    steps = max(0, round((limit - used) / slope))
    return (
        f"{what} memory grows by {slope / (1 << 20):.2f} MiB a step: {_gib(used)} of {_gib(limit)} "
        f"now, all of it in about {steps:,} steps"
    )


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.2f} GiB"


def current_usage(*, gpu: bool) -> Usage:
    """What this process, all that it started, and its GPU hold now."""
    host = sum(_private(pid) for pid in _family(os.getpid()))
    if not gpu:
        return Usage(host)
    import torch

    return Usage(
        host,
        torch.cuda.memory_allocated(),
        torch.cuda.memory_reserved(),
        torch.cuda.max_memory_allocated(),
        torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
    )


def _private(pid: int) -> int:
    """Anonymous and shared pages; pages of files can be taken back at any time."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # ended since it was listed
        return 0
    sizes = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Rss"))
    return sum(int(sizes.get(name, "0 kB").split()[0]) << 10 for name in ("RssAnon", "RssShmem"))


def _family(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in _family(child))]


def memory_limit(
    limit_gib: float = 0.0,
    *,
    root: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Bytes that one rank may use: the node's limit over its ranks. `limit_gib` is of the node."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    if limit_gib:
        found.append(int(limit_gib * (1 << 30)))
    found += _slurm_limits(environment)
    found += _cgroup_limits(root)
    return min(found) // max(1, int(environment.get("LOCAL_WORLD_SIZE", "1")))


def _slurm_limits(environment: Mapping[str, str]) -> list[int]:
    """In MiB, for the node or for each of its CPUs; 0 stands for all of the node's memory."""
    node = _number(environment.get("SLURM_MEM_PER_NODE"))
    cpus = _number(environment.get("SLURM_CPUS_ON_NODE"))
    each = _number(environment.get("SLURM_MEM_PER_CPU"))
    return [size << 20 for size in (node, each * cpus) if size]


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _cgroup_limits(root: Path) -> list[int]:
    """Of the process's own control group and those around it, versions 1 and 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        inner = Path(place.lstrip("/"))
        for folder in (inner, *inner.parents):
            try:
                text = (top / folder / name).read_text(encoding="ascii").strip()
            except OSError:  # not every group is seen from inside a container
                continue
            found += [int(text)] if text.isdigit() else []  # "max": none
    return found


def newest_usage(attempt_dir: Path) -> dict[int, Usage]:
    """What each rank of an attempt held when it last took a sample."""
    found: dict[int, Usage] = {}
    for path in sorted((attempt_dir / FOLDER_NAME).glob("rank-*.jsonl")):
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().splitlines()
        samples = (sample for line in reversed(lines) if (sample := _sample(line)))
        newest = next(samples, None)
        if newest is not None:
            found[int(path.stem.removeprefix("rank-"))] = newest
    return found


def _sample(line: bytes) -> Usage | None:
    try:
        values = json.loads(line)
        return Usage(**{name: values[name] for name in Usage._fields})
    except (ValueError, TypeError, KeyError):  # a notice, or a torn line
        return None


class NoticeFollower:
    """Reads the notices of an attempt's ranks as they come."""

    def __init__(self, attempt_dir: Path) -> None:
        self._folder = attempt_dir / FOLDER_NAME
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[Notice]:
        """Those written since the last call, by rank. A torn last line waits for its end."""
        found = []
        for path in sorted(self._folder.glob("rank-*.jsonl")):
            with path.open("rb") as stream:
                stream.seek(self._offsets.get(path, 0))
                data = stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            found += [notice for line in whole.splitlines() if (notice := _parse(line))]
        return found


def _parse(line: bytes) -> Notice | None:
    try:
        return Notice(**json.loads(line))
    except (ValueError, TypeError):  # a sample, or what a power cut left
        return None
