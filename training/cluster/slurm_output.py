"""What Slurm's commands print, parsed: pure functions from text to typed values.

Covers squeue, sinfo, sacct, the jobcomp/filetxt log, `scontrol show config` and node lists. The
formats asked for are in `training.cluster.slurm_client`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from workspace.errors import UserError

# Between the fields of a row: a control character, which no name can hold.
SEPARATOR = "\x1f"

# What squeue's -O prints, in this order. The first four cannot hold odd characters.
JOB_FIELDS = ("JobID", "State", "RestartCnt", "exit_code", "NodeList", "Reason", "Name", "WorkDir")


class ExitStatus(NamedTuple):
    """How a job's batch script ended, as the scheduler knows it."""

    code: int = 0
    signal: int = 0


@dataclass(frozen=True)
class JobInfo:
    """What the scheduler says of a job. `state` is Slurm's word (RUNNING, NODE_FAIL, ...)."""

    job_id: str
    state: str
    name: str = ""
    work_dir: str = ""  # "" where the source does not say
    reason: str = ""
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    exit: ExitStatus = field(default_factory=ExitStatus)


@dataclass(frozen=True)
class NodeInfo:
    """A node; `state` in lower case without flags, `responding` False when marked with `*`."""

    name: str
    state: str
    responding: bool
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether the scheduler would start a job on it."""
        bad = ("down", "drain", "drng", "fail", "error", "unknown", "reboot", "inval")
        return self.responding and not self.state.startswith(bad)


def parse_job_id(printed: str) -> str:
    """The id from `sbatch --parsable` (`id` or `id;cluster`)."""
    lines = printed.strip().splitlines()
    job_id = lines[-1].split(";")[0] if lines else ""
    if not job_id.isdigit():
        raise UserError(f"sbatch printed no job id but {printed!r}")
    return job_id


def parse_jobs(listing: str) -> list[JobInfo]:
    """Rows of `squeue --Format` with this module's fields."""
    jobs = []
    for line in listing.split("\n"):
        fields = [_plain(field) for field in line.split(SEPARATOR)]
        if len(fields) < len(JOB_FIELDS):
            continue
        job_id, state, restarts, status, nodes, reason, name, work_dir = fields[: len(JOB_FIELDS)]
        jobs.append(
            JobInfo(
                job_id=job_id,
                state=state,
                restarts=int(restarts or 0),
                exit=parse_exit(status),
                nodes=expand_nodes(nodes),
                reason=reason,
                name=name,
                work_dir=work_dir,
            )
        )
    return jobs


def parse_exit(text: str) -> ExitStatus:
    """`93:0` (code:signal), or the wait status that squeue prints (93 << 8)."""
    if ":" in text:
        code, _, signal = text.partition(":")
        return ExitStatus(int(code), int(signal))
    status = int(text or 0)
    return ExitStatus((status >> 8) & 0xFF, status & 0x7F)


def parse_nodes(listing: str) -> list[NodeInfo]:
    """Rows of `sinfo --Node --format` with name, state and reason; each node once."""
    nodes: dict[str, NodeInfo] = {}
    for line in listing.splitlines():
        fields = line.split(SEPARATOR)
        if len(fields) == 3:
            name, state, reason = fields
            base = state.rstrip("*~#!%$@^-+")
            nodes[name] = NodeInfo(name, base.lower(), "*" not in state, _plain(reason))
    return [nodes[name] for name in sorted(nodes)]


def parse_gpus(listing: str) -> dict[str, int]:
    """Rows of `sinfo --Node --format` with name and gres: GPUs of each node.

    Such as `gpu:h100:8(S:0-1),shard:16`: types and counts are optional, places in brackets are not
    counted.
    """
    gpus: dict[str, int] = {}
    for line in listing.splitlines():
        name, separator, gres = line.partition(SEPARATOR)
        if separator:
            kinds = re.sub(r"\([^)]*\)", "", gres).strip().split(",")
            counts = [kind.split(":")[1:] for kind in kinds if kind.split(":")[0] == "gpu"]
            gpus[name] = sum(
                int(parts[-1]) if parts and parts[-1].isdigit() else 1 for parts in counts
            )
    return gpus


def parse_accounting(listing: str) -> list[JobInfo]:
    """Rows of sacct: id, state (`CANCELLED by 123` is CANCELLED), exit code, nodes, name."""
    jobs = []
    for line in listing.splitlines():
        fields = line.split(SEPARATOR)
        if len(fields) == 5 and fields[1].strip():
            job_id, state, status, nodes, name = fields
            jobs.append(
                JobInfo(
                    job_id=job_id,
                    state=state.split()[0],
                    name=name,
                    nodes=expand_nodes(nodes) if nodes != "None assigned" else (),
                    exit=parse_exit(status),
                )
            )
    return jobs


def parse_completions(lines: Iterable[str], job_id: str) -> list[JobInfo]:
    """Lines of jobcomp/filetxt that speak of `job_id`, oldest first."""
    found = []
    for line in lines:
        if line.startswith(f"JobId={job_id} "):
            values = dict(part.partition("=")[::2] for part in line.split())
            found.append(
                JobInfo(
                    job_id=job_id,
                    state=values.get("JobState", ""),
                    name=values.get("Name", ""),
                    nodes=expand_nodes(_plain(values.get("NodeList", ""))),
                    exit=parse_exit(values.get("ExitCode", "0:0")),
                )
            )
    return found


def parse_config(shown: str) -> dict[str, str]:
    """`scontrol show config` as name -> value."""
    pairs = (line.partition("=") for line in shown.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_version(printed: str) -> tuple[int, int]:
    """`slurm 22.05.8` or `slurm-wlm 22.05.8` as (22, 5)."""
    match = re.search(r"(\d+)\.(\d+)", printed)
    if match is None:
        raise UserError(f"sinfo --version printed {printed!r}")
    return int(match[1]), int(match[2])


def expand_nodes(compressed: str) -> tuple[str, ...]:
    """`gpu[01-03,7],login` as single names, in order."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", compressed):
        expanded = [""]
        for text, ranges in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            choices = [text] if text else _expand_ranges(ranges)
            expanded = [before + choice for before in expanded for choice in choices]
        names += expanded
    return tuple(names)


def _expand_ranges(ranges: str) -> list[str]:
    numbers = []
    for item in ranges.split(","):
        first, dash, last = item.partition("-")
        if dash:
            width = len(first)
            numbers += [str(n).zfill(width) for n in range(int(first), int(last) + 1)]
        else:
            numbers.append(first)
    return numbers


def _plain(text: str) -> str:
    """Slurm prints these words for nothing."""
    return "" if text in ("(null)", "None", "n/a", "N/A", "none") else text
