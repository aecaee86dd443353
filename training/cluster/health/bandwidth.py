"""The links between nodes, pair by pair, before a long job starts on them.

    srun --nodes 16 --ntasks-per-node 1 python -m training.cluster.health.bandwidth \
        --shared /fsx/tmp --mib 64 [--json] [--save workspace/links.json]

In each round every node exchanges an all-reduce with one other node, until each has met each
(a round-robin tournament), over NCCL with GPUs and gloo without. A node whose median over its
partners is below half of the median of all nodes is named. With `--shared`, each node also writes
a file there and waits for everybody's: file systems that show new files late are found so.
`--save` keeps the measurement for the planner (`training.planner.links`).

Slow (seconds a round), so apart from the quick checks. Exit code 1: a node was named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_output import expand_nodes
from workspace import publish
from workspace.manifest import now

SLOW_BELOW = 0.5  # of the median of all nodes


class Pair(NamedTuple):
    """Two ranks, the lower first."""

    low: int
    high: int


def rounds(nodes: int) -> Iterator[list[Pair]]:
    """A round-robin tournament by the circle method: each pair once, each node once a round."""
    seats = [*range(nodes), *([-1] if nodes % 2 else [])]
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        yield [Pair(min(a, b), max(a, b)) for a, b in facing if min(a, b) >= 0]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def medians(gbytes: Mapping[Pair, float], nodes: int) -> list[float]:
    """Each node's median over its partners, in GB/s."""
    return [
        statistics.median(speed for pair, speed in gbytes.items() if node in pair)
        for node in range(nodes)
    ]


def document(
    devices: Sequence[str],
    pairs: Sequence[tuple[str, str, float]],
    slow: Sequence[str],
    files_not_seen: Sequence[str] = (),
) -> dict[str, Any]:
    """A measurement as `training.planner.links` reads it, speeds in GB/s."""
    names = list(dict.fromkeys(name for low, high, _ in pairs for name in (low, high)))
    return {
        "measured": now(),
        "devices": sorted(set(devices) - {""}),
        "nodes": {
            name: statistics.median(speed for *both, speed in pairs if name in both)
            for name in sorted(names)
        },
        "pairs": [list(pair) for pair in pairs],
        "slow": list(slow),
        "files_not_seen": list(files_not_seen),
    }


def slow_nodes(gbytes: Mapping[Pair, float], nodes: int) -> list[int]:
    """Nodes with a median below half of the median node's. Two nodes cannot blame each other."""
    if nodes < 3:
        return []
    each = medians(gbytes, nodes)
    usual = statistics.median(each)
    return [node for node, speed in enumerate(each) if speed < SLOW_BELOW * usual]


def measure(mib: int, repeats: int) -> dict[Pair, float]:
    """Run the tournament on the initialised process group; all pairs' speeds, on every rank.

    Speed as nccl-tests' bus bandwidth: for two ranks, bytes / seconds.
    """
    import torch
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    gpu = dist.get_backend() == "nccl"
    data = torch.ones(mib << 18, dtype=torch.float32, device="cuda" if gpu else "cpu")
    own: list[tuple[int, int, float]] = []
    for pairs in rounds(world):
        groups = {pair: dist.new_group(list(pair)) for pair in pairs}
        mine = next((pair for pair in pairs if rank in pair), None)
        if mine is not None:
            seconds = time_all_reduce(data, groups[mine], repeats, gpu)
            if rank == mine.low:
                own.append((*mine, data.nbytes / seconds / 1e9))
        # Else the next round's traffic would slow the stragglers of this one.
        dist.barrier()
        if mine is not None:
            dist.destroy_process_group(groups[mine])
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, own)
    return {Pair(low, high): speed for part in gathered for low, high, speed in part}


def time_all_reduce(data: Any, group: Any, repeats: int, gpu: bool) -> float:
    """Seconds of the fastest of `repeats` in `group` (None: the default one), after one to open
    the connection."""
    import torch
    import torch.distributed as dist

    best = float("inf")
    for turn in range(repeats + 1):
        started = time.perf_counter()
        dist.all_reduce(data, group=group)
        if gpu:
            torch.cuda.synchronize()
        if turn:
            best = min(best, time.perf_counter() - started)
    return best


def late_files(shared: Path, rank: int, world: int, timeout_s: float) -> list[int]:
    """Ranks whose file was not seen in time by this one. Call between two barriers."""
    folder = shared / f".dsm-preflight-{os.environ.get('SLURM_JOB_ID', '0')}"
    folder.mkdir(exist_ok=True)
    own = folder / str(rank)
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT, 0o600)
    os.fsync(descriptor)
    os.close(descriptor)
    deadline = time.monotonic() + timeout_s
    while True:
        missing = sorted(set(range(world)) - {int(path.name) for path in folder.iterdir()})
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="bandwidth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="of each all-reduce")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shared", type=Path, help="folder on a shared file system")
    parser.add_argument("--shared-timeout", type=float, default=30.0, help="seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path, help="file to write the same JSON to")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a collective")
    chosen = parser.parse_args(arguments)
    _join(chosen.timeout)
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    names: list[Any] = [None] * world
    dist.all_gather_object(names, os.environ.get("SLURMD_NODENAME", f"rank {rank}"))
    devices: list[Any] = [None] * world
    dist.all_gather_object(devices, _device())
    late: list[Any] = [[]] * world
    if chosen.shared:
        dist.all_gather_object(late, late_files(chosen.shared, rank, world, chosen.shared_timeout))
    speeds = measure(chosen.mib, chosen.repeats) if world > 1 else {}
    dist.barrier()
    dist.destroy_process_group()
    slow = slow_nodes(speeds, world)
    unseen = sorted({other for missing in late for other in missing})
    if rank == 0:
        _remove_files(chosen.shared)
        measured = document(
            devices,
            [(names[low], names[high], speed) for (low, high), speed in speeds.items()],
            [names[node] for node in slow],
            [names[node] for node in unseen],
        )
        if chosen.save:
            publish.write_json(chosen.save, measured)
        if chosen.json:
            print(json.dumps(measured, indent=2))
        else:
            _report(measured)
    return int(bool(slow or unseen))


def _join(timeout_s: float) -> None:
    """Join the group: torchrun's variables, else Slurm's for srun with a task a node."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("RANK", os.environ.get("SLURM_PROCID", "0"))
    os.environ.setdefault("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))
    if "MASTER_ADDR" not in os.environ:
        first = expand_nodes(os.environ.get("SLURM_JOB_NODELIST", ""))[:1]
        os.environ["MASTER_ADDR"] = SlurmClient().address(*first) if first else "127.0.0.1"
        os.environ["MASTER_PORT"] = str(20000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 12000)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("SLURM_LOCALID", "0")))
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))


def _remove_files(shared: Path | None) -> None:
    if shared is None:
        return
    folder = shared / f".dsm-preflight-{os.environ.get('SLURM_JOB_ID', '0')}"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _device() -> str:
    """This rank's GPU as the driver calls it; "" without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def _report(measured: Mapping[str, Any]) -> None:
    for node, speed in sorted(measured["nodes"].items(), key=lambda item: item[1]):
        print(f"{node}: {speed:.2f} GB/s{'  SLOW' if node in measured['slow'] else ''}")
    for node in measured["files_not_seen"]:
        print(f"{node}: its file was not seen in time by every node")


if __name__ == "__main__":
    sys.exit(main())
