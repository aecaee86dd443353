"""Processes that should not be there: of ended jobs, stuck in the kernel, or never reaped.

A process belongs to a job of ours when the attempt's folder is in its environment
(`training.cluster.marks.MARK`), which it inherits even when it left its parent and its session, so
that Slurm's `proctrack/linuxproc` no longer knows it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from training.cluster import marks
from training.cluster.health.config import NodeLimits
from training.cluster.health.results import Severity, Verdict, combine
from training.cluster.job import OUTCOME_NAME
from training.cluster.local import EXIT_NAME

JobEnded = Callable[[str, Path], bool]


class Scope(NamedTuple):
    """Whose processes are looked at: several nodes, and clusters, may share one machine.

    `cluster` "": of any. `started_before`, in seconds since the boot: a job may have started after
    Slurm was asked which ones there are.
    """

    node: str
    cluster: str = ""
    started_before: float = math.inf


@dataclass(frozen=True)
class Leftover:
    """A process of a job that is over."""

    pid: int
    job_id: str
    command: str


@dataclass(frozen=True)
class Processes:
    """`stuck` lists uninterruptible ones by name, `leftovers` those of ended jobs."""

    zombies: int
    stuck: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = ()


class _Stat(NamedTuple):
    pid: int
    name: str
    state: str
    started: str


def read_processes(scope: Scope, ended: JobEnded, look_s: float) -> Processes:
    """Look twice, `look_s` apart; `ended(job id, attempt folder)` says whether a job is over."""
    before = {(stat.pid, stat.started) for stat in _stats() if stat.state == "D"}
    time.sleep(look_s if before else 0)
    now = list(_stats())
    stuck = {stat.name for stat in now if stat.state == "D" and (stat.pid, stat.started) in before}
    return Processes(
        sum(stat.state == "Z" for stat in now),
        tuple(sorted(stuck)),
        tuple(find_leftovers(scope, ended)),
    )


def judge_processes(processes: Processes, config: NodeLimits) -> Verdict:
    found = []
    if processes.leftovers:
        jobs = sorted({leftover.job_id for leftover in processes.leftovers})
        found.append(
            Verdict(
                Severity.DRAIN,
                f"{len(processes.leftovers)} process(es) of ended job(s) {', '.join(jobs)}",
                "the epilog ends them; what survives SIGKILL needs a reboot",
            )
        )
    if processes.stuck:
        found.append(
            Verdict(
                Severity.WARN,
                f"stuck in the kernel: {', '.join(processes.stuck)}",
                "look at file systems and drivers",
            )
        )
    if processes.zombies > config.max_zombies:
        found.append(Verdict(Severity.WARN, f"{processes.zombies} zombie processes"))
    return combine(found, f"none left over, {processes.zombies} zombies")


def end_leftovers(scope: Scope, ended: JobEnded) -> tuple[Leftover, ...]:
    """Kill the processes of ended jobs; returns those that were found."""
    found = tuple(find_leftovers(scope, ended))
    if found:
        marks.end(lambda: (leftover.pid for leftover in find_leftovers(scope, ended)))
    return found


def find_leftovers(scope: Scope, ended: JobEnded) -> Iterator[Leftover]:
    """Processes whose job is over."""
    job_id = ""

    def left_over(environment: marks.Environment) -> bool:
        nonlocal job_id
        job_id = environment.get("SLURM_JOB_ID", "")
        here = environment.get("SLURMD_NODENAME", scope.node) == scope.node
        if scope.cluster:
            here &= environment.get("SLURM_CLUSTER_NAME", scope.cluster) == scope.cluster
        return bool(job_id) and here and ended(job_id, Path(environment[marks.MARK]))

    for pid in marks.marked(left_over):
        stat = _stat(pid)
        if stat is None or stat.state == "Z":
            continue
        if int(stat.started) / os.sysconf("SC_CLK_TCK") < scope.started_before:
            yield Leftover(pid, job_id, stat.name)


def ended_on_disk(job_id: str, attempt_dir: Path) -> bool:
    """Whether the attempt's folder says that the job is over; asks nobody else."""
    if (attempt_dir / OUTCOME_NAME).exists():
        return True
    try:
        record = json.loads((attempt_dir / EXIT_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return str(record.get("job_id", "")) == job_id


def _stats() -> Iterator[_Stat]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # it ended between the listing and the look
    # The name stands in brackets and may itself hold any letter.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return _Stat(pid, head.partition("(")[2], fields[0], fields[19])
