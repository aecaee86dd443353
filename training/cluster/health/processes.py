"""Processes that should not be there: of ended jobs, stuck in the kernel, or never reaped.

A process belongs to a job of ours when the attempt's folder is in its environment
(`training.cluster.marks.MARK`), which it inherits even when it left its parent and its session, so
that Slurm's `proctrack/linuxproc` no longer knows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from training.attempt_history import OUTCOME_NAME
from training.cluster import marks
from training.cluster.health.config import HealthConfig
from training.cluster.health.results import Severity, Verdict, combine
from training.cluster.local import EXIT_NAME

JobEnded = Callable[[str, Path], bool]


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


def read_processes(node: str, ended: JobEnded, look_s: float) -> Processes:
    """Look twice, `look_s` apart; `ended(job id, attempt folder)` says whether a job is over."""
    before = {(stat.pid, stat.started) for stat in _stats() if stat.state == "D"}
    time.sleep(look_s if before else 0)
    now = list(_stats())
    stuck = {stat.name for stat in now if stat.state == "D" and (stat.pid, stat.started) in before}
    return Processes(
        sum(stat.state == "Z" for stat in now),
        tuple(sorted(stuck)),
        tuple(find_leftovers(node, ended)),
    )


def judge_processes(processes: Processes, config: HealthConfig) -> Verdict:
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


def end_leftovers(node: str, ended: JobEnded) -> tuple[Leftover, ...]:
    """Kill the processes of ended jobs; returns those that were found."""
    found = tuple(find_leftovers(node, ended))
    if found:
        marks.end(lambda: (leftover.pid for leftover in find_leftovers(node, ended)))
    return found


def find_leftovers(node: str, ended: JobEnded) -> Iterator[Leftover]:
    """Processes of this node whose job is over.

    Of this node: several of Slurm's nodes may share one machine, and its processes.
    """
    job_id = ""

    def left_over(environment: marks.Environment) -> bool:
        nonlocal job_id
        job_id = environment.get("SLURM_JOB_ID", "")
        here = environment.get("SLURMD_NODENAME", node) == node
        return bool(job_id) and here and ended(job_id, Path(environment[marks.MARK]))

    for pid in marks.marked(left_over):
        stat = _stat(pid)
        if stat is not None and stat.state != "Z":
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
