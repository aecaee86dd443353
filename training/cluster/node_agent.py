"""One node's ranks: starts them, looks after them, reports to the job's coordinator.

The coordinator's `srun` starts one agent on each node of the allocation:

    python -m training.cluster.node_agent --attempt-dir DIR --processes 8 -- COMMAND

In: the coordinator's address and key in the environment, then its orders. Out: twice a second what
each rank is doing, how ranks ended (`rank_process`), and what the node's checks find
(`agent_checks`). With `--metrics-targets` Prometheus may ask too (`agent_metrics`).

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
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from training.checkpoints import GENERATION_VARIABLE
from training.cluster.agent_checks import Exchange, NodeWatch, unfitness
from training.cluster.agent_link import (
    ADDRESS_VARIABLE,
    HEALTH,
    KEY_VARIABLE,
    LINK,
    UNFIT,
    Link,
    LinkError,
    Message,
    connect,
)
from training.cluster.agent_metrics import (
    AgentFigures,
    MetricsServer,
    wished_port,
)
from training.cluster.health.config import NodeLimits
from training.cluster.marks import MARK, Environment, end, marked
from training.cluster.rank_process import Place, Rank, last_words, start_rank
from training.cluster.stacks import read_stack
from training.cluster.standstill import Standstill

EXIT_UNFIT = 4
BEAT_S = 0.5
_TICK_S = 0.1
_CONNECT_S = 60.0
NODE_VARIABLE = "SLURMD_NODENAME"


class Agent:
    """Obeys the coordinator until it is told to leave, or the coordinator is gone."""

    def __init__(
        self,
        link: Link,
        command: Sequence[str],
        processes: int,
        folder: Path,
        metrics: MetricsServer | None = None,
        watch: NodeWatch | None = None,
    ) -> None:
        self.metrics = metrics
        self.watch = watch
        self._exchange = Exchange()
        self.link = link
        self.command = command
        self.processes = processes
        self.folder = folder  # the attempt's
        self.node = os.environ.get(NODE_VARIABLE) or socket.gethostname()
        self.terminated = threading.Event()
        self._told_terminated = False
        self._ranks: list[Rank] = []
        self._generation = 0
        self._stopped_generation = 0
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
                self._look_at_checks()
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
            self._end_checks()
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
            self._stop(message["grace_s"], message["generation"])
        elif order == "stacks":
            self._tell("stacks", generation=self._generation, stacks=self._stacks())
        elif order == LINK:
            self._meet(message)
        return bool(order != "leave")

    def _start(self, place: Place) -> None:
        self._generation = place.generation
        ended = end_orphans(self.folder, self.node, place.generation)
        if ended:
            print(f"{self.node}: ended {len(ended)} processes of earlier ranks", flush=True)
        self._ranks = [
            start_rank(self.command, place, local, self.folder, self._scratch)
            for local in range(self.processes)
        ]
        self._tell("started", generation=place.generation, orphans=len(ended))

    def _look_at_ranks(self) -> None:
        if self._kill_at is not None and (time.monotonic() >= self._kill_at or self._all_ended()):
            self._end_ranks()
            self._kill_at = None
            self._tell("stopped", generation=self._stopped_generation)
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

    def _meet(self, order: Message) -> None:
        if order["task"] is None:  # there are no more
            self._exchange.end()
        else:
            self._exchange.begin(order["round"], order["task"])

    def _look_at_checks(self) -> None:
        answer = self._exchange.news()
        if answer is not None:
            self._tell(LINK, **answer)
        news = self.watch.news() if self.watch is not None else None
        if news is not None:
            self._tell(HEALTH, **news)

    def _end_checks(self) -> None:
        self._exchange.end()
        if self.watch is not None:
            self.watch.end()

    def _beat(self) -> None:
        if self.terminated.is_set() and not self._told_terminated:
            self._told_terminated = True
            self._tell("terminated")
        living = [rank.view(self._awake_since) for rank in self._ranks if rank.exit_code is None]
        self._tell("beat", generation=self._generation, ranks=living)

    def _figures(self) -> AgentFigures:
        ranks = tuple(rank.figures(self._awake_since) for rank in self._ranks)
        return AgentFigures(self._generation, ranks)

    def _stop(self, grace_s: float, generation: int) -> None:
        self._stopped_generation = generation
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


def free_port(wish: int) -> int:
    """`wish` or the next port on which nothing listens here; below the kernel's ephemeral range,
    whose ports may be taken by an outgoing connection at any moment."""
    first, last = 20_000, 32_000
    for offset in range(last - first):
        port = first + (wish - first + offset) % (last - first)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError(f"no free port between {first} and {last}")


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
    parser.add_argument("--health", default="", help="NodeLimits as JSON; empty: no check")
    parser.add_argument("--health-every", type=float, default=0.0, help="seconds; 0: only at first")
    parser.add_argument("--metrics-targets", type=Path, help="where Prometheus looks for addresses")
    parser.add_argument("--metrics-port", type=int, default=0, help="0: derived from the job")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    watch = None
    if chosen.health:
        limits = NodeLimits.parse(json.loads(chosen.health), origin="--health")
        why = unfitness(limits)
        if why:
            tell_unfit(why)
            return EXIT_UNFIT
        watch = NodeWatch(limits, chosen.health_every)
    # Ignored across exec: a rank without a handler survives an operator's `scancel --signal=USR2`.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    link, metrics = _connect(), None
    if chosen.metrics_targets is not None:
        metrics = serve_metrics(
            link, chosen.metrics_targets, chosen.metrics_port, chosen.attempt_dir
        )
    agent = Agent(link, chosen.command, chosen.processes, chosen.attempt_dir, metrics, watch)
    signal.signal(signal.SIGTERM, lambda *_: agent.terminated.set())
    return agent.run()


if __name__ == "__main__":
    sys.exit(main())
