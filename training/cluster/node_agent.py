"""One node's ranks: starts them, looks after them, reports to the job's coordinator.

The coordinator's `srun` starts one agent on each node of the allocation:

    python -m training.cluster.node_agent --attempt-dir DIR --processes 8 -- COMMAND

In: the coordinator's address and key in the environment, then its orders. Out: twice a second what
each rank is doing, and how ranks ended. Each rank gets torchrun's variables (RANK, LOCAL_RANK,
WORLD_SIZE, MASTER_ADDR, ...), so that `init_process_group("env://")` works, and writes to
`DIR/logs/rank-NNNN.log`. With `--metrics-targets` Prometheus may ask too (`agent_metrics`).

Nothing outlives its agent: the kernel kills the ranks when it dies, it kills them when it loses
the coordinator, and before it starts ranks it ends what earlier generations and attempts of the
same stage left on its node.

Ranks are asked to stop by the file `STOP_FILE`, which they look for themselves. On scancel and
preemption Slurm sends SIGTERM to every process of the step: the ranks may save for as long as Slurm
lets them, the agent stays to report. It passes no signal on: a second one would kill a rank whose
interpreter is shutting down and has given its handlers back.

Why not torchrun: it exits with 1 whatever the code of its ranks was (75 and 93 mean something to
us), dies on USR signals, and importing torch costs seconds on each start. The rendezvous is
torch's own (a TCPStore opened by rank 0).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.checkpoints import GENERATION_VARIABLE
from training.cluster.agent_link import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    UNFIT,
    Link,
    LinkError,
    Message,
    connect,
)
from training.cluster.agent_metrics import (
    AgentFigures,
    MetricsServer,
    RankFigures,
    resident_bytes,
    wished_port,
)
from training.cluster.heartbeat import BEAT_VARIABLE, STACK_VARIABLE, BeatReader
from training.cluster.marks import MARK, Environment, end, marked
from training.cluster.stacks import read_stack
from training.cluster.standstill import Standstill

EXIT_UNFIT = 4
BEAT_S = 0.5
_TICK_S = 0.1
_CONNECT_S = 60.0
NODE_VARIABLE = "SLURMD_NODENAME"

# The last line of a traceback, which torch may mark with the rank.
_EXCEPTION = re.compile(r"(\[rank\d+\]: )?[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


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


class Agent:
    """Obeys the coordinator until it is told to leave, or the coordinator is gone."""

    def __init__(
        self,
        link: Link,
        command: Sequence[str],
        processes: int,
        folder: Path,
        metrics: MetricsServer | None = None,
    ) -> None:
        self.metrics = metrics
        self.link = link
        self.command = command
        self.processes = processes
        self.folder = folder  # the attempt's
        self.node = os.environ.get(NODE_VARIABLE) or socket.gethostname()
        self.terminated = threading.Event()
        self._told_terminated = False
        self._ranks: list[Rank] = []
        self._generation = 0
        self._kill_at: float | None = None
        self._standstill = Standstill()
        self._awake_since = 0.0
        self._scratch = Path(tempfile.mkdtemp(prefix="dsm-ranks-", dir=_memory_folder()))

    def run(self) -> int:
        """Until the coordinator says so (0) or is gone (1)."""
        try:
            self.link.send({"event": "hello", "node": self.node, "pid": os.getpid()})
            beat_at = 0.0
            while True:
                message = self.link.receive(_TICK_S)
                if self._standstill.seconds():
                    self._awake_since = time.monotonic()
                if message is not None and not self._obey(message):
                    return 0
                self._standstill.skip()
                self._look_at_ranks()
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + BEAT_S
                    self._beat()
                if self.metrics is not None:
                    self.metrics.answer(self._figures)
        except LinkError as error:
            print(f"{self.node}: lost the coordinator ({error}); ending the ranks", flush=True)
            return 1
        finally:
            if self.metrics is not None:
                self.metrics.close()
            self._end_ranks()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _obey(self, message: Message) -> bool:
        order = message["order"]
        if order == "port":
            self._tell("port", port=free_port(message["wish"]))
        elif order == "start":
            place = Place(
                message["generation"], message["node_rank"], message["nodes"], self.processes,
                message["master_addr"], message["master_port"],
            )  # fmt: skip
            self._start(place)
        elif order == "stop":
            self._stop(message["grace_s"])
        elif order == "stacks":
            self._tell("stacks", generation=self._generation, stacks=self._stacks())
        return bool(order != "leave")

    def _start(self, place: Place) -> None:
        self._generation = place.generation
        ended = end_orphans(self.folder, self.node, place.generation)
        if ended:
            print(f"{self.node}: ended {len(ended)} processes of earlier ranks", flush=True)
        self._ranks = [self._start_rank(place, local) for local in range(self.processes)]
        self._tell("started", generation=place.generation, orphans=len(ended))

    def _start_rank(self, place: Place, local_rank: int) -> Rank:
        environment = place.environment(local_rank)
        rank = int(environment["RANK"])
        log = self.folder / "logs" / f"rank-{rank:04d}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        stacks = log.with_name(f"stacks-{rank:04d}.log")
        beat = BeatReader(self._scratch / f"beat-{place.generation}-{rank}")
        with log.open("ab") as stream:
            log_start = stream.tell()
            process = subprocess.Popen(
                [sys.executable, *self.command],
                env={
                    **rank_environment(),
                    **environment,
                    BEAT_VARIABLE: str(beat.path),
                    STACK_VARIABLE: str(stacks),
                },
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                # Safe: this process has one thread.
                preexec_fn=_die_with_parent,
            )
        return Rank(rank, process, log, log_start, beat, stacks)

    def _look_at_ranks(self) -> None:
        if self._kill_at is not None and (time.monotonic() >= self._kill_at or self._all_ended()):
            self._end_ranks()
            self._kill_at = None
            self._tell("stopped", generation=self._generation)
            return
        for rank in self._ranks:
            code = rank.exit_code
            if code is None or rank.reported:
                continue
            rank.reported = True
            error = last_words(rank.log, code, rank.log_start)
            if code:
                print(f"rank {rank.rank} ended with {code}: {error}", flush=True)
            self._tell(
                "exited", generation=self._generation, rank=rank.rank, code=code, error=error,
                ended=time.time(),
            )  # fmt: skip

    def _beat(self) -> None:
        if self.terminated.is_set() and not self._told_terminated:
            self._told_terminated = True
            self._tell("terminated")
        living = [rank.view(self._awake_since) for rank in self._ranks if rank.exit_code is None]
        self._tell("beat", generation=self._generation, ranks=living)

    def _figures(self) -> AgentFigures:
        ranks = tuple(rank.figures(self._awake_since) for rank in self._ranks)
        return AgentFigures(self._generation, ranks)

    def _stop(self, grace_s: float) -> None:
        if grace_s > 0:
            for rank in self._ranks:
                if rank.exit_code is None:
                    rank.process.send_signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + grace_s

    def _stacks(self) -> list[Message]:
        return [
            {
                "rank": rank.rank,
                "frames": (stack := read_stack(rank.process.pid, rank.stacks)).frames,
                "source": stack.source,
            }
            for rank in self._ranks
            if rank.exit_code is None
        ]

    def _all_ended(self) -> bool:
        return all(rank.exit_code is not None for rank in self._ranks)

    def _end_ranks(self) -> None:
        """Also what they started and left."""
        for rank in self._ranks:
            if rank.exit_code is None:
                rank.process.kill()
        for rank in self._ranks:
            rank.process.wait()
            rank.beat.close()
        if self._ranks:
            end_orphans(self.folder, self.node, self._generation + 1)
        self._ranks = []

    def _tell(self, event: str, **values: object) -> None:
        self.link.send({"event": event, "node": self.node, **values})


def end_orphans(folder: Path, node: str, generation: int) -> list[int]:
    """Kill processes of earlier attempts of this stage, and of this attempt's generations before
    `generation` on `node`; returns whom. Several of Slurm's nodes may share one machine."""
    attempts, own = folder.parent, int(folder.name) if folder.name.isdigit() else None

    def left_over(environment: Environment) -> bool:
        theirs = Path(environment[MARK])
        if environment.get(NODE_VARIABLE, node) != node or theirs.parent != attempts:
            return False
        if theirs == folder:
            return int(environment.get(GENERATION_VARIABLE, generation)) < generation
        return own is not None and theirs.name.isdigit() and int(theirs.name) < own

    def find() -> Iterator[int]:
        return marked(left_over)

    return end(find)


def rank_environment() -> dict[str, str]:
    """This process's environment without what is the agent's alone."""
    return {name: value for name, value in os.environ.items() if name not in _OWN}


_OWN = frozenset({ADDRESS_VARIABLE, KEY_VARIABLE})


def free_port(wish: int) -> int:
    """`wish` or the next port on which nothing listens here; below the kernel's ephemeral range,
    whose ports may be taken by an outgoing connection at any moment."""
    first, last = 20_000, 32_000
    for offset in range(last - first):
        port = first + (wish - first + offset) % (last - first)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError(f"no free port between {first} and {last}")


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


def _die_with_parent() -> None:
    """In the child: the kernel kills it when the agent ends, however that comes about."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _memory_folder() -> str | None:
    """A folder in memory for the heartbeats, which would else be written to a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


def _connect() -> Link:
    """The coordinator listens before it starts us, but a network may take its time."""
    host, _, port = os.environ[ADDRESS_VARIABLE].rpartition(":")
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            return connect(host, int(port), os.environ[KEY_VARIABLE])
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def unfitness(health: str) -> str:
    """Why this node may not train, "" when it may; what speaks against it goes to the job's log.

    Before there are threads: each check runs in a forked child. A spare takes an unfit node's
    place, or the attempt ends and the next one is without it.
    """
    from training.cluster.health import HealthConfig, Severity
    from training.cluster.health.checks import Situation, host_name, run_checks
    from training.cluster.health.processes import Scope

    # Leftovers are ended by the agent itself, and may still be dying of the last attempt.
    situation = Situation(Scope(host_name()), lambda job_id, folder: False)
    results = run_checks(HealthConfig.parse(json.loads(health), origin="--health"), situation)
    unfit = [result for result in results if result.severity >= Severity.DRAIN]
    for result in unfit:
        print(f"{host_name()} is not fit: {result.describe()}", flush=True)
    return "; ".join(result.describe() for result in unfit)


def tell_unfit(why: str) -> None:
    """To the coordinator, where it can be reached."""
    node = os.environ.get(NODE_VARIABLE) or socket.gethostname()
    try:
        link = _connect()
        link.send({"event": UNFIT, "node": node, "why": why})
        link.close()
    except (OSError, LinkError) as error:
        print(f"{node}: the coordinator does not know that it is not fit: {error}", flush=True)


def serve_metrics(link: Link, targets: Path, port: int, folder: Path) -> MetricsServer | None:
    """None, and a line in the job's log, where it cannot be: the ranks need none of it."""
    node = os.environ.get(NODE_VARIABLE) or socket.gethostname()
    try:
        wish = port or wished_port(int(os.environ.get("SLURM_JOB_ID", os.getpid())))
        return MetricsServer(link.own_address, wish, targets, folder, node)
    except (OSError, ImportError) as error:
        print(f"{node}: serves no metrics: {error}", flush=True)
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="node_agent", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attempt-dir", type=Path, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--health", default="", help="HealthConfig as JSON; empty: no check")
    parser.add_argument("--metrics-targets", type=Path, help="where Prometheus looks for addresses")
    parser.add_argument("--metrics-port", type=int, default=0, help="0: derived from the job")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    why = unfitness(chosen.health) if chosen.health else ""
    if why:
        tell_unfit(why)
        return EXIT_UNFIT
    # Ignored across exec: a rank without a handler survives an operator's `scancel --signal=USR2`.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    link, metrics = _connect(), None
    if chosen.metrics_targets is not None:
        metrics = serve_metrics(
            link, chosen.metrics_targets, chosen.metrics_port, chosen.attempt_dir
        )
    agent = Agent(link, chosen.command, chosen.processes, chosen.attempt_dir, metrics)
    signal.signal(signal.SIGTERM, lambda *_: agent.terminated.set())
    return agent.run()


if __name__ == "__main__":
    sys.exit(main())
