"""A coordinator and the agents of several nodes, all of them processes of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from training.cluster.coordinator import Coordinator
from training.cluster.hang import SectionLimits
from training.cluster.health.config import LinkLimits
from training.cluster.job_plan import Plan
from training.cluster.marks import MARK, marked
from training.run_events import EVENTS_NAME, RunEvent, read_events


class Job:
    """Runs in a thread; `nodes` train, `spares` wait. Nodes are called n0, n1, ..."""

    def __init__(
        self,
        folder: Path,
        *command: str,
        nodes: int = 1,
        spares: int = 0,
        processes: int = 2,
        restarts: int = 0,
        checkpoints: Path | None = None,
        sections: SectionLimits | None = None,
        replace_stragglers: bool = False,
        metrics_targets: Path | None = None,
        health: Mapping[str, str] | None = None,
        health_every_s: float = 0.0,
        links: LinkLimits | None = None,
        environments: Mapping[str, str] | None = None,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        """`health`: what a node's agent is to check. `environments`: variables of a node's own, as
        before a command in a shell. `instead` of an agent a node may run a line of shell."""
        self.folder = folder
        self._metrics = ["--metrics-targets", str(metrics_targets)] if metrics_targets else []
        self.names = tuple(f"n{number}" for number in range(nodes + spares))
        plan = Plan(
            folder, command, self.names, nodes, processes, restarts, checkpoints,
            sections or SectionLimits(), replace_stragglers, links=links,
        )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.coordinator = Coordinator(
            plan, self._start_agents, host="127.0.0.1", job_id=os.getpid()
        )
        self.exit_code: int | None = None
        self._health, self._instead = health or {}, instead or {}
        self._health_every_s = health_every_s
        self._environments = environments or {}
        self._processes = processes
        self._command = command
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Job:
        self._thread.start()
        return self

    def wait(self, within_s: float = 90.0) -> int:
        self._thread.join(within_s)
        assert self.exit_code is not None, f"the job still runs: {self.events()}"
        return self.exit_code

    def events(self, name: str = "") -> list[RunEvent]:
        found = read_events(self.folder / EVENTS_NAME)
        return [event for event in found if name in ("", event.event)]

    def log(self, rank: int) -> str:
        path = self.folder / "logs" / f"rank-{rank:04d}.log"
        return path.read_text() if path.exists() else ""

    def until(self, condition: Callable[[], object], what: str, within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"never {what}: {self.events()}"
            time.sleep(0.02)

    def pids(self, node: str, *, ranks: bool) -> list[int]:
        """Processes of a node: its ranks, or its agent."""

        def wanted(environment: dict[str, str]) -> bool:
            here = environment[MARK] == str(self.folder) and environment.get("SLURMD_NODENAME")
            return here == node and ("RANK" in environment) == ranks

        return list(marked(wanted))

    def kill_node(self, node: str, *, number: int = signal.SIGKILL) -> None:
        """Its agent dies as with the machine; the kernel takes the ranks along."""
        for pid in self.pids(node, ranks=False):
            os.kill(pid, number)

    def _run(self) -> None:
        self.exit_code = self.coordinator.run()

    def _start_agents(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        lines = [self._instead.get(name) or self._agent(name) for name in self.names]
        return subprocess.Popen(
            ["bash", "-c", "\n".join([*(f"{line} &" for line in lines), "wait"])],
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
        )

    def _agent(self, node: str) -> str:
        agent = shlex.join(
            [
                sys.executable, "-m", "training.cluster.node_agent",
                "--attempt-dir", str(self.folder), "--processes", str(self._processes),
                *self._metrics, "--health", self._health.get(node, ""),
                "--health-every", str(self._health_every_s), "--", *self._command,
            ]
        )  # fmt: skip
        own = f"{self._environments.get(node, '')} {MARK}={shlex.quote(str(self.folder))}"
        return f"SLURMD_NODENAME={node} {own} {agent}"
