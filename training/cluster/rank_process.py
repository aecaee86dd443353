"""One rank's process on a node: its place among the others, its log, its heartbeat, how it ended.

`start_rank` gives it torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...), so that
`init_process_group("env://")` works, and has it write to `FOLDER/logs/rank-NNNN.log`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.checkpoints import GENERATION_VARIABLE
from training.cluster.agent_link import ADDRESS_VARIABLE, KEY_VARIABLE, Message
from training.cluster.agent_metrics import RankFigures, resident_bytes
from training.cluster.heartbeat import BEAT_VARIABLE, STACK_VARIABLE, BeatReader
from training.cluster.side_task import die_with_parent

# The last line of a traceback, which torch may mark with the rank.
_EXCEPTION = re.compile(r"(\[rank\d+\]: )?[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")


@dataclass(frozen=True)
class Place:
    """This node's place among those that train, in one generation of ranks."""

    generation: int
    node_rank: int
    nodes: int
    processes: int
    master_addr: str
    master_port: int

    def environment(self, local_rank: int) -> dict[str, str]:
        """What torchrun would set for this rank."""
        return {
            "RANK": str(self.node_rank * self.processes + local_rank),
            "LOCAL_RANK": str(local_rank),
            "GROUP_RANK": str(self.node_rank),
            "WORLD_SIZE": str(self.nodes * self.processes),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(self.generation - 1),
            GENERATION_VARIABLE: str(self.generation),
        }


@dataclass
class Rank:
    """A rank's process, its log and its heartbeat."""

    rank: int
    process: subprocess.Popen[bytes]
    log: Path
    log_start: int  # where this generation's part begins
    beat: BeatReader
    stacks: Path
    reported: bool = False
    told_step: int = 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal when killed, as a shell says it."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code

    def view(self, awake_since: float) -> Message:
        """What it is doing, for the coordinator; without a beat only that it lives.

        Nothing is held against it from before `awake_since` (monotonic).
        """
        said = self.beat.read()
        if said is None:
            return {"rank": self.rank, "state": process_state(self.process.pid)}
        steps = [one for one in said.steps if one[0] > self.told_step]
        self.told_step = max([self.told_step, *(number for number, _ in steps)])
        return {
            "rank": self.rank,
            "state": process_state(self.process.pid),
            "section": int(said.section),
            "age_s": time.monotonic() - max(said.since, awake_since),
            "step": said.step,
            "changes": said.changes,
            "steps": steps,
        }

    def figures(self, awake_since: float) -> RankFigures:
        """What it is doing, for Prometheus; takes nothing away from the coordinator."""
        said, pid = self.beat.read(), self.process.pid
        return RankFigures(
            self.rank,
            process_state(pid) if self.exit_code is None else "X",
            said.section if said else None,
            time.monotonic() - max(said.since, awake_since) if said else 0.0,
            said.step if said else 0,
            resident_bytes(pid) if self.exit_code is None else None,
        )


def start_rank(
    command: Sequence[str], place: Place, local_rank: int, folder: Path, scratch: Path
) -> Rank:
    """Start one of this node's ranks of `place`. `folder`: the attempt's; `scratch`: in memory."""
    environment = place.environment(local_rank)
    rank = int(environment["RANK"])
    log = folder / "logs" / f"rank-{rank:04d}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    stacks = log.with_name(f"stacks-{rank:04d}.log")
    beat = BeatReader(scratch / f"beat-{place.generation}-{rank}")
    with log.open("ab") as stream:
        log_start = stream.tell()
        process = subprocess.Popen(
            [sys.executable, *command],
            env={
                **rank_environment(),
                **environment,
                BEAT_VARIABLE: str(beat.path),
                STACK_VARIABLE: str(stacks),
            },
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            # Safe: the agent has one thread.
            preexec_fn=die_with_parent,
        )
    return Rank(rank, process, log, log_start, beat, stacks)


def rank_environment() -> dict[str, str]:
    """This process's environment without what is the agent's alone."""
    return {name: value for name, value in os.environ.items() if name not in _OWN}


_OWN = frozenset({ADDRESS_VARIABLE, KEY_VARIABLE})


def last_words(log: Path, exit_code: int, start: int = 0) -> str:
    """The log's last exception from byte `start` on, else its last line, at most 300 characters.

    A killed rank's last line is whatever it happened to print: only an exception counts there.
    """
    with log.open("rb") as stream:
        stream.seek(max(start, log.stat().st_size - 16384))
        lines = [line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    spoken = exceptions or ([] if exit_code > 128 else list(filter(None, lines)))
    return spoken[-1][:300] if spoken else ""


def process_state(pid: int) -> str:
    """The letter that /proc shows: R, S, D, T, Z, ...; X when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"
