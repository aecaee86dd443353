"""The node agents of one job as its coordinator sees them: who is there, who fell silent.

An agent that is lost stays lost: its connection is closed on this side too, so that one that was
only slow ends its ranks itself when it comes to. A node that Slurm takes out of the job (its slurmd
is dead, its ranks may live) is lost as well. Silence while this process itself stood still (its job
was suspended, its host swapped) is held against nobody, and most nodes at once are waited for: it
is the network of this one that is away, perhaps for a moment.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from training.cluster.agent_link import HEALTH, UNFIT, Link, LinkError, Listener, Message
from training.cluster.health.results import Severity
from training.cluster.slurm_client import SlurmClient
from training.cluster.slurm_queue import QUEUE_VARIABLE, SharedQueue
from training.cluster.standstill import STOOD_STILL, Standstill
from training.cluster.suspicion import Finding, Loss, Suspicion, of_losses, together
from training.run_events import EventLog
from workspace.errors import TransientError, UserError

TICK_S = 0.1
SILENT_S = 5.0  # an agent that says nothing for so long is lost
CUT_OFF_S = 30.0  # the same when most others are silent as well
AT_ONCE_S = 2.0  # agents that are lost within so long went together
GATHER_S = 600.0  # for the agents to come up at all
LATE_S = 20.0  # that a spare may come later than the nodes that train
HELD_S = 20.0  # that a look at the job's nodes in Slurm may be old
_HELD_TICK_S = 5.0  # between two looks at what others were told of them

HeldNodes = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Lost:
    """An agent that was given up `at` (monotonic)."""

    how: Loss
    at: float


@dataclass
class AgentHandle:
    """A node's agent. `views`: what it last said of its ranks, by rank."""

    node: str
    link: Link
    heard: float
    views: dict[int, Message] = field(default_factory=dict)


class Fleet:
    """All agents; that of the first of `names` runs on this machine. `held` says which nodes the
    scheduler gives the job (empty: it cannot say)."""

    def __init__(
        self, names: Sequence[str], listener: Listener, log: EventLog, held: HeldNodes
    ) -> None:
        self.names = names
        self.agents: dict[str, AgentHandle] = {}
        self.lost: dict[str, Lost] = {}
        self.unfit: dict[str, str] = {}  # nodes that say so themselves, and why
        self.findings: dict[str, Finding] = {}  # what nodes' checks say while they train
        self.generation = 0  # for the events
        self.patience_s = SILENT_S
        self._listener = listener
        self._log = log
        self._held = held
        self._standstill = Standstill()
        self._cut_off: set[str] = set()  # nodes that fell silent with most others

    def gather(self, wanted: int, hopeless: Callable[[], bool]) -> list[str]:
        """Wait for the agents; the nodes of those that came, in the allocation's order.

        All are waited for, those beyond `wanted` for a short while only, the unfit not at all.
        """
        started = time.monotonic()
        enough_at: float | None = None
        while len(self.agents) + len(self.unfit) < len(self.names):
            self._admit()
            for _ in self.listen():
                pass  # nothing was asked yet
            now = time.monotonic()
            if enough_at is None and len(self.agents) >= wanted:
                enough_at = now
            late = enough_at is not None and now - enough_at > LATE_S
            if late or now - started > GATHER_S or hopeless():
                break
        missing = self.missing()
        if missing:
            self._log.say("agents_missing", f"no agent on {', '.join(missing)}", nodes=missing)
        return [name for name in self.names if name in self.agents]

    def missing(self) -> tuple[str, ...]:
        """Nodes of which nothing was ever heard."""
        known = self.agents.keys() | self.unfit.keys() | self.lost.keys()
        return tuple(name for name in self.names if name not in known)

    def listen(self) -> Iterator[tuple[AgentHandle, Message]]:
        """What the agents say, for up to a tick; notices who is lost."""
        by_connection = {agent.link.connection: agent for agent in self.agents.values()}
        if not by_connection:
            time.sleep(TICK_S)
        for ready in wait(list(by_connection), TICK_S) if by_connection else ():
            agent = by_connection[ready]  # type: ignore[index]
            try:
                while (message := agent.link.receive()) is not None:
                    agent.heard = time.monotonic()
                    if message["event"] == HEALTH:
                        self._take_finding(agent.node, message)
                    yield agent, message
            except LinkError:
                self.lose(agent, Loss.CLOSED)
        self._forgive(self._standstill.seconds())
        held = self._held()
        for agent in list(self.agents.values()):
            if held and agent.node not in held:
                self.lose(agent, Loss.TAKEN, f"Slurm took {agent.node} out of the job")
        for agent in self._silent(time.monotonic()):
            self.lose(agent, Loss.SILENT)

    def _take_finding(self, node: str, message: Message) -> None:
        finding = Finding(Severity[message["severity"].upper()], message["why"])
        self.findings[node] = finding
        event = "node_unwell" if finding.severity >= Severity.DRAIN else "node_well"
        said = finding.why or "what spoke against it is gone"
        self._log.say(event, said, generation=self.generation, nodes=(node,))

    def unwell(self, nodes: Sequence[str], severity: Severity) -> tuple[str, ...]:
        """Those of `nodes` whose checks find something as bad as `severity`; none where most do,
        which is not the nodes' fault."""
        found = tuple(
            node
            for node in nodes
            if node in self.findings and self.findings[node].severity >= severity
        )
        return () if together(len(found), len(self.agents)) else found

    def _silent(self, now: float) -> list[AgentHandle]:
        """Those that have said nothing for too long."""
        own = self.names[0]
        others = [agent for agent in self.agents.values() if agent.node != own]
        quiet = [agent for agent in others if now - agent.heard > self.patience_s / 2]
        at_once = together(len(quiet), len(others))
        if at_once:
            self._say_cut_off(quiet)
            self._cut_off |= {agent.node for agent in quiet}
        # When the network is back, each connection has its own moment to go on.
        self._cut_off &= {agent.node for agent in quiet}

        def too_long(agent: AgentHandle) -> bool:
            longest_s = CUT_OFF_S if agent.node in self._cut_off else 0.0
            return now - agent.heard > max(self.patience_s, longest_s)

        silent = [agent for agent in self.agents.values() if too_long(agent)]
        return quiet if at_once and any(agent.node != own for agent in silent) else silent

    def _say_cut_off(self, quiet: Sequence[AgentHandle]) -> None:
        if self._cut_off or self.patience_s >= CUT_OFF_S:
            return  # it was said, or they look into their ranks
        self._log.say(
            "cut_off",
            f"no word from {', '.join(agent.node for agent in quiet)} at once: waiting for the "
            f"network of {self.names[0]}",
            generation=self.generation,
        )

    def suspicion(self, gone: Sequence[str]) -> Suspicion:
        """Whom it points at that the agents of `gone` are lost."""
        since = time.monotonic() - AT_ONCE_S
        lately = {node: lost.how for node, lost in self.lost.items() if lost.at >= since}
        lost = {node: self.lost[node].how for node in gone} | lately
        others = (self.agents.keys() | lost.keys()) - {self.names[0]}
        return of_losses(lost, others, self.names[0])

    def _forgive(self, seconds: float) -> None:
        """Nothing could be heard for so long."""
        for agent in self.agents.values():
            agent.heard += seconds
        if seconds < SILENT_S:
            return  # nobody would have been lost
        self._log.say(
            STOOD_STILL,
            f"for {seconds:.0f} s, suspended by Slurm or starved by the node",
            generation=self.generation,
            facts={"seconds": round(seconds, 3)},
        )

    def lose(self, agent: AgentHandle, how: Loss, why: str = "") -> None:
        """Give an agent up."""
        if self.agents.pop(agent.node, None) is None:
            return
        agent.link.close()
        self.lost[agent.node] = Lost(how, time.monotonic())
        self._log.say(
            "node_lost",
            why or f"no word from the agent on {agent.node}",
            generation=self.generation,
            nodes=(agent.node,),
        )

    def send(self, to: Sequence[str], **order: object) -> None:
        """An order to the agents of some nodes; those that are gone are passed over."""
        for node in to:
            agent = self.agents.get(node)
            if agent is None:
                continue
            try:
                agent.link.send(dict(order))
            except LinkError:
                self.lose(agent, Loss.CLOSED)

    def present(self, nodes: Sequence[str]) -> list[str]:
        """Those of `nodes` whose agent is there."""
        return [node for node in nodes if node in self.agents]

    def _admit(self) -> None:
        while not self._listener.admitted.empty():
            link = self._listener.admitted.get()
            try:
                hello = link.receive(SILENT_S)
            except LinkError:
                hello = None
            node = hello["node"] if hello else ""
            if hello and node in self.names and hello["event"] == UNFIT:
                self.unfit[node] = hello["why"]
                self._log.say("node_unfit", hello["why"], nodes=(node,))
                link.close()
            elif node in self.names and node not in self.agents:
                self.agents[node] = AgentHandle(node, link, time.monotonic())
            else:
                link.close()


class NodesInSlurm:
    """`HeldNodes` by squeue in the background: three times a minute, or not at all while the
    supervisor shares what it was told."""

    def __init__(self, job_id: int) -> None:
        self._nodes: tuple[str, ...] = ()
        self._job_id = str(job_id)
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> Sequence[str]:
        return self._nodes

    def _watch(self) -> None:
        client, shared = SlurmClient(delays_s=()), os.environ.get(QUEUE_VARIABLE)
        queue = SharedQueue(client.own_jobs, Path(shared) if shared else None)
        while True:
            time.sleep(_HELD_TICK_S)
            try:
                info = queue.job(self._job_id, HELD_S)
            except (TransientError, UserError):
                continue  # nothing is concluded from silence
            self._nodes = info.nodes if info and info.state == "RUNNING" else ()
