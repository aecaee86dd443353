"""One generation of ranks: start them on their nodes, watch until it is over, end what is left.

It is over when all ranks are done, when one has failed (the others cannot go on without it), when
a node is lost, or when the ranks hang. The outcome says why, and whom the evidence points at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from training.cluster.agent_link import Message
from training.cluster.evidence import RankExit, cause_of_exit, root_exit
from training.cluster.fleet import SILENT_S, AgentHandle, Fleet
from training.cluster.hang import RankView, SectionLimits, culprits, describe_hang, overdue
from training.cluster.health.results import Severity
from training.cluster.heartbeat import Section
from training.cluster.job import EXIT_DONE, EXIT_RESUME
from training.cluster.recovery import Cause
from training.cluster.stragglers import Straggler, StragglerWatch
from training.cluster.suspicion import Loss
from training.run_events import EventLog

STACKS_S = 30.0  # that the agents have to look into their ranks
SETTLE_S = 0.5  # after a rank's or an agent's death, for others that died with it to be heard of
GRACEFUL_S = 60.0  # a rank that saved its checkpoint waits this long for the others
LEFTOVER_GRACE_S = 5.0  # after that
STOPPED_S = 15.0  # an agent that cannot end its ranks by then is lost


class Outcome(NamedTuple):
    """Why a generation ended; `exit` is that of the rank that brought it about, if one did."""

    cause: Cause
    suspects: tuple[str, ...] = ()
    error: str = ""
    exit: RankExit | None = None


class Place(NamedTuple):
    """Where a generation runs: `nodes` in the order of their ranks; `port_wish` to meet at."""

    number: int
    nodes: tuple[str, ...]
    processes: int  # on each node
    port_wish: int


class Generation:
    """Runs once. `terminated` becomes true when Slurm told the agents to end."""

    def __init__(
        self,
        fleet: Fleet,
        place: Place,
        sections: SectionLimits,
        log: EventLog,
        ask_to_leave: Callable[[str], bool] = lambda node: False,
    ) -> None:
        """`ask_to_leave`: have the ranks save and leave, so that another node can take the place of
        the one named; False when none can."""
        self.terminated = False
        self._ask_to_leave = ask_to_leave
        self._left_behind: Outcome | None = None  # when the ranks have left on account of it
        self._fleet = fleet
        self._place = place
        self._sections = sections
        self._log = log
        self._ranks = len(place.nodes) * place.processes
        self._exits: list[RankExit] = []
        self._done: set[int] = set()
        self._port: int | None = None
        self._stopped: set[str] = set()
        self._stacks: dict[int, tuple[str, ...]] = {}
        self._stacks_of: set[str] = set()
        self._stragglers = StragglerWatch(self._ranks)

    def run(self) -> Outcome:
        """To its end; no rank of it lives afterwards on a node that can be reached."""
        for agent in self._fleet.agents.values():
            agent.views = {}
        outcome = self._start() or self._watch()
        if outcome.cause is not Cause.DONE:
            # Those that are still saving have had their time in `_watch`.
            saved = outcome.cause in (Cause.STOPPED, Cause.SLOW)
            self._end(LEFTOVER_GRACE_S if saved else 0.0)
        return outcome

    def _start(self) -> Outcome | None:
        """Have the ranks started; an outcome when a node is lost before."""
        fleet, place = self._fleet, self._place
        fleet.send(place.nodes[:1], order="port", wish=place.port_wish)
        while self._port is None:
            self._listen()
            gone = self._gone()
            if gone:
                return gone
        master = fleet.agents.get(place.nodes[0])
        for node_rank, node in enumerate(place.nodes):
            fleet.send(
                [node],
                order="start",
                generation=place.number,
                node_rank=node_rank,
                nodes=len(place.nodes),
                master_addr=master.link.peer if master else "",
                master_port=self._port,
            )
        return self._gone()

    def _watch(self) -> Outcome:
        failed_at: float | None = None
        while True:
            self._listen()
            over = self._gone() or self._untrusted()
            if over:
                return over
            if self._exits:
                failed_at = failed_at or time.monotonic()
                root = root_exit(self._exits)
                # Who stopped on request lets the others save; a death is final at once.
                patience_s = GRACEFUL_S if root.code == EXIT_RESUME else SETTLE_S
                ended = len(self._done) + len(self._exits)
                if ended >= self._ranks or time.monotonic() - failed_at >= patience_s:
                    left = root.code == EXIT_RESUME and self._left_behind
                    return left or _outcome_of(root)
            elif len(self._done) >= self._ranks:
                return Outcome(Cause.DONE)
            else:
                hung = self._hung()
                if hung:
                    return hung

    def _gone(self) -> Outcome | None:
        gone = tuple(node for node in self._place.nodes if node not in self._fleet.agents)
        if not gone:
            return None
        if any(self._fleet.lost[node].how is Loss.CLOSED for node in gone):
            settled = time.monotonic() + SETTLE_S
            while time.monotonic() < settled:
                self._listen()
        # The ranks of a lost node take others with them; that is not those others' doing.
        found = self._fleet.suspicion(gone)
        return Outcome(found.cause, found.nodes, found.why)

    def _untrusted(self) -> Outcome | None:
        """A node of which its checks say that what runs on it cannot be trusted."""
        nodes = self._fleet.unwell(self._place.nodes, Severity.ISOLATE)
        why = "; ".join(self._fleet.findings[node].why for node in nodes)
        return Outcome(Cause.UNFIT, nodes, why) if nodes else None

    def _end(self, grace_s: float) -> None:
        """End what is left of the ranks, so that none runs beside the next generation's."""
        fleet, nodes = self._fleet, self._place.nodes
        # Its number, which an agent does not know that was not told to start yet.
        fleet.send(nodes, order="stop", grace_s=grace_s, generation=self._place.number)
        deadline = time.monotonic() + grace_s + STOPPED_S
        while waiting := [node for node in fleet.present(nodes) if node not in self._stopped]:
            self._listen()
            if time.monotonic() > deadline:
                for node in fleet.present(waiting):
                    fleet.lose(fleet.agents[node], Loss.SILENT, f"{node} cannot end its ranks")

    # -- what the agents say

    def _listen(self) -> None:
        for agent, message in self._fleet.listen():
            self._take(agent, message)

    def _take(self, agent: AgentHandle, message: Message) -> None:
        event = message["event"]
        if event == "port":
            self._port = int(message["port"])
        elif event == "terminated":
            self.terminated = True
        elif message.get("generation") != self._place.number:
            return  # of ranks that are gone
        elif event == "beat":
            self._take_beat(agent, message["ranks"])
        elif event == "exited":
            self._take_exit(agent, message)
        elif event == "stopped":
            self._stopped.add(agent.node)
        elif event == "stacks":
            self._stacks_of.add(agent.node)
            self._stacks |= {one["rank"]: tuple(one["frames"]) for one in message["stacks"]}
        elif event == "started" and message["orphans"]:
            told = f"{message['orphans']} processes of earlier ranks on {agent.node}"
            self._say("orphans_ended", told, (agent.node,))

    def _take_exit(self, agent: AgentHandle, message: Message) -> None:
        if message["code"] == EXIT_DONE:
            self._done.add(message["rank"])
            return
        self._exits.append(
            RankExit(
                message["rank"], agent.node, message["code"], message["error"], message["ended"]
            )
        )

    def _take_beat(self, agent: AgentHandle, views: list[Message]) -> None:
        agent.views = {view["rank"]: view for view in views}
        for view in views:
            steps = [(int(number), float(seconds)) for number, seconds in view.get("steps", ())]
            for straggler in self._stragglers.add(view["rank"], steps):
                self._take_straggler(straggler)

    def _take_straggler(self, straggler: Straggler) -> None:
        node = self._place.nodes[straggler.rank // self._place.processes]
        said = (
            f"rank {straggler.rank} on {node} needs {straggler.ratio:.2f} times as long as the "
            f"others, seen at step {straggler.step}"
        )
        if not straggler.confirmed:
            self._say("straggler", said, (node,), straggler._asdict())
        elif self._left_behind is None and self._ask_to_leave(node):
            self._left_behind = Outcome(Cause.SLOW, (node,), said)
            self._say("straggler_leaves", f"the ranks save, to go on without {node}", (node,))

    # -- hangs

    def _hung(self) -> Outcome | None:
        if not overdue(self._views(), self._sections):
            return None
        self._ask_for_stacks()
        views = self._views()
        late = overdue(views, self._sections)
        if not late:
            return None  # it was only slow
        named = culprits(views)
        detail = "; ".join(describe_hang(view, self._sections) for view in (named or late)[:4])
        nodes = tuple(sorted({view.node for view in named}))
        self._say(
            "hang",
            detail if named else f"{detail}; nothing tells which rank the others wait for",
            nodes,
            {
                "ranks": [view.rank for view in named],
                "stacks": {str(view.rank): view.stack for view in views},
            },
        )
        return Outcome(Cause.HUNG, nodes, detail[:600])

    def _views(self) -> list[RankView]:
        """Of the ranks that have spoken; a trainer without heartbeats has none."""
        agents = [self._fleet.agents[node] for node in self._fleet.present(self._place.nodes)]
        return [
            RankView(
                view["rank"],
                agent.node,
                Section(view["section"]),
                view["age_s"],
                view["step"],
                view["changes"],
                view["state"],
                self._stacks.get(view["rank"], ()),
            )
            for agent in agents
            for view in agent.views.values()
            if "section" in view
        ]

    def _ask_for_stacks(self) -> None:
        """Of all ranks; then wait for beats that are newer."""
        fleet, nodes = self._fleet, self._place.nodes
        self._stacks_of = set()
        fleet.patience_s = STACKS_S  # an agent that looks into its ranks does not beat
        fleet.send(nodes, order="stacks")
        self._listen_until(lambda node: node in self._stacks_of, STACKS_S)
        fleet.patience_s = SILENT_S
        for node in fleet.present(nodes):
            fleet.agents[node].heard = time.monotonic()
            fleet.agents[node].views = {}
        self._listen_until(lambda node: bool(fleet.agents[node].views), SILENT_S)

    def _listen_until(self, heard: Callable[[str], bool], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and not all(
            heard(node) for node in self._fleet.present(self._place.nodes)
        ):
            self._listen()

    def _say(
        self,
        event: str,
        detail: str,
        nodes: Sequence[str],
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self._log.say(event, detail, generation=self._place.number, nodes=tuple(nodes), facts=facts)


def _outcome_of(root: RankExit) -> Outcome:
    cause = cause_of_exit(root.code, root.error)
    suspects = () if cause in (Cause.STOPPED, Cause.USER_FAULT, Cause.STORAGE) else (root.node,)
    return Outcome(cause, suspects, root.error, root)
