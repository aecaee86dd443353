"""Start one node's ranks, watch them, report how they ended.

`srun` runs one agent per node:

    python -m training.cluster.node_agent --attempt-dir DIR --nodes 2 --processes 8 -- COMMAND

In: MASTER_ADDR and MASTER_PORT in the environment, the node's rank in SLURM_NODEID. Each rank gets
torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, ...), so that `init_process_group("env://")`
works, and writes to `DIR/logs/rank-NNNN.log`. Out: `DIR/exits/node-NNNN.json`, and for the first
node of the job that fails also `DIR/first-failure.json`; the exit code is that of the node's first
failing rank (128 + signal if killed).

Ranks are asked to stop by the file `STOP_FILE`, which they look for themselves. On scancel and
preemption Slurm sends SIGTERM to every process of the step: the ranks may save for as long as Slurm
lets them, the agent stays to report. It passes no signal on: a second one would kill a rank whose
interpreter is shutting down and has given its handlers back.

Why not torchrun: it exits with 1 whatever the code of its ranks was (75 and 93 mean something to
us), dies on USR signals, and importing torch costs seconds on each start. The rendezvous is
torch's own (a TCPStore opened by rank 0).

Not covered: restarting ranks inside the allocation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from training.cluster.job import EXIT_RESUME
from workspace import publish

EXITS_NAME = "exits"
FIRST_FAILURE_NAME = "first-failure.json"

# The last line of a traceback, which torch may mark with the rank.
_EXCEPTION = re.compile(r"(\[rank\d+\]: )?[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
_POLL_S = 0.1
# Files on a shared file system, which many agents look at, are looked at less often.
_SHARED_POLL_S = 1.0
# A rank that saved its checkpoint waits this long for the others before the node gives up on them.
_GRACEFUL_S = 60.0
# After a crash the node's other ranks cannot go on; TERM, then KILL.
_TERMINATE_S = 5.0


@dataclass(frozen=True)
class NodeExit:
    """How a node's ranks ended. Field order matters: the batch script reads `exit_code` first."""

    exit_code: int
    rank: int
    host: str
    error: str
    ended_ns: int


@dataclass(frozen=True)
class Layout:
    """This node's place in the job."""

    node_rank: int
    nodes: int
    processes: int

    def environment(self, local_rank: int) -> dict[str, str]:
        """What torchrun would set for this rank."""
        return {
            "RANK": str(self.node_rank * self.processes + local_rank),
            "LOCAL_RANK": str(local_rank),
            "GROUP_RANK": str(self.node_rank),
            "WORLD_SIZE": str(self.nodes * self.processes),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "GROUP_WORLD_SIZE": str(self.nodes),
        }


@dataclass
class Rank:
    """A rank's process and its log."""

    rank: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal when killed, as a shell says it."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code


def run(
    command: Sequence[str], layout: Layout, attempt_dir: Path, terminate: threading.Event
) -> int:
    """Run the ranks to their end and report it; returns the node's exit code.

    `terminate` is set when this process was sent SIGTERM.
    """
    ranks = [_start(command, layout, local, attempt_dir) for local in range(layout.processes)]
    try:
        first = _watch(ranks, attempt_dir, terminate)
        if first is not None:
            _wind_down(ranks, graceful=first.exit_code == EXIT_RESUME)
        outcome = _report(first, layout, attempt_dir)
        if outcome.exit_code == EXIT_RESUME:
            _await_other_nodes(layout, attempt_dir)
        return outcome.exit_code
    finally:
        _kill(ranks)


def _start(command: Sequence[str], layout: Layout, local_rank: int, attempt_dir: Path) -> Rank:
    environment = layout.environment(local_rank)
    rank = int(environment["RANK"])
    log = attempt_dir / "logs" / f"rank-{rank:04d}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    return Rank(rank, process, log)


def _watch(ranks: list[Rank], attempt_dir: Path, terminate: threading.Event) -> Rank | None:
    """Until all ranks are done (None) or one fails (that rank)."""
    while True:
        for rank in ranks:
            if rank.exit_code:
                return rank
        if all(rank.exit_code == 0 for rank in ranks):
            return None
        if terminate.is_set() and _crashed_elsewhere(attempt_dir):
            # Without that rank the others wait in a collective operation and cannot save.
            _signal(ranks, signal.SIGKILL)
        time.sleep(_POLL_S)


def _crashed_elsewhere(attempt_dir: Path) -> bool:
    try:
        first = json.loads((attempt_dir / FIRST_FAILURE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(first["exit_code"] != EXIT_RESUME)


def _wind_down(ranks: list[Rank], *, graceful: bool) -> None:
    if graceful and _all_end_within(ranks, _GRACEFUL_S):
        return
    _signal(ranks, signal.SIGTERM)
    _all_end_within(ranks, _TERMINATE_S)
    _kill(ranks)


def _all_end_within(ranks: list[Rank], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(rank.exit_code is None for rank in ranks):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _signal(ranks: list[Rank], number: signal.Signals) -> None:
    for rank in ranks:
        if rank.exit_code is None:
            rank.process.send_signal(number)


def _kill(ranks: list[Rank]) -> None:
    _signal(ranks, signal.SIGKILL)
    for rank in ranks:
        rank.process.wait()


def _report(failed: Rank | None, layout: Layout, attempt_dir: Path) -> NodeExit:
    outcome = NodeExit(
        exit_code=(failed.exit_code or 0) if failed else 0,
        rank=failed.rank if failed else layout.node_rank * layout.processes,
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        error=_last_words(failed.log, failed.exit_code or 0) if failed else "",
        ended_ns=time.time_ns(),
    )
    record = attempt_dir / EXITS_NAME / f"node-{layout.node_rank:04d}.json"
    publish.write_text(record, json.dumps(asdict(outcome)) + "\n")
    if failed is not None:
        print(f"rank {outcome.rank} ended with {outcome.exit_code}: {outcome.error}", flush=True)
        # A hard link is atomic on every POSIX file system: the first node to fail wins.
        with contextlib.suppress(FileExistsError):
            os.link(record, attempt_dir / FIRST_FAILURE_NAME)
    return outcome


def _last_words(log: Path, exit_code: int) -> str:
    """The log's last exception, else its last line, at most 300 characters.

    A killed rank's last line is whatever it happened to print: only an exception counts there.
    """
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 16384))
        lines = [line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    spoken = exceptions or ([] if exit_code > 128 else list(filter(None, lines)))
    return spoken[-1][:300] if spoken else ""


def _await_other_nodes(layout: Layout, attempt_dir: Path) -> None:
    """A non-zero exit makes srun kill the other nodes: let them finish saving first."""
    deadline = time.monotonic() + _GRACEFUL_S
    while time.monotonic() < deadline:
        if len(list((attempt_dir / EXITS_NAME).glob("node-*.json"))) >= layout.nodes:
            return
        time.sleep(_SHARED_POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="node_agent", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attempt-dir", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    layout = Layout(int(os.environ.get("SLURM_NODEID", "0")), chosen.nodes, chosen.processes)
    # Ignored across exec: a rank without a handler survives an operator's `scancel --signal=USR2`.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    terminate = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminate.set())
    return run(chosen.command, layout, chosen.attempt_dir, terminate)


if __name__ == "__main__":
    sys.exit(main())
