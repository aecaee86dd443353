"""Runs one job's ranks to their end, and starts them again inside the allocation when they fail.

The batch script starts it on the job's first node:

    python -m training.cluster.coordinator --attempt-dir DIR --nodes 2 --spares 1 --processes 8 \\
        --cpus 4 --restarts 100 --checkpoints DIR -- COMMAND

It starts one node agent on every node of the allocation by a single srun, picks `--nodes` of them
to train, and watches: ranks that exit, agents that fall silent (a lost node is noticed in seconds,
Slurm takes 25), sections that take longer than they may, ranks that are slower than the others.
When a generation of ranks has ended, `training.cluster.recovery` says what comes next: the same
nodes again, a spare in place of a bad one, or the end of the job, after which the supervisor goes
on. A generation's number is written to `DIR/generation` before its ranks start: a survivor of an
older one can publish no checkpoint.

Out: `DIR/events.jsonl`, `DIR/first-failure.json` (of the last generation), and the exit code of
the rank that brought the end about. Not covered: its own node. When that dies the job is over.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from training import checkpoints
from training.cluster.agent_link import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    Link,
    LinkError,
    Listener,
    Message,
    new_key,
)
from training.cluster.evidence import (
    ENDED,
    RankExit,
    cause_of_exit,
    ending_facts,
    read_history,
    root_exit,
)
from training.cluster.hang import (
    RankView,
    SectionLimits,
    culprits,
    describe_hang,
    overdue,
)
from training.cluster.heartbeat import Section
from training.cluster.job import EXIT_DONE, EXIT_NEVER_AGAIN, EXIT_RESUME, FIRST_FAILURE_NAME
from training.cluster.recovery import (
    Cause,
    Decision,
    Ending,
    Limits,
    Means,
    RestartInPlace,
    UseSpare,
    decide,
    describe,
)
from training.cluster.slurm_client import SlurmClient
from training.cluster.stragglers import StragglerWatch
from training.run_events import EVENTS_NAME, EventLog
from workspace import publish
from workspace.errors import TransientError, UserError

TICK_S = 0.1
SILENT_S = 5.0  # an agent that says nothing for so long is lost
STACKS_S = 30.0  # that the agents have to look into their ranks
SETTLE_S = 0.5  # after a rank's death, for others that died before it to be heard of
GRACEFUL_S = 60.0  # a rank that saved its checkpoint waits this long for the others
GATHER_S = 600.0  # for the agents to come up at all
LATE_S = 20.0  # that a spare may come later than the nodes that train
_HELD_S = 20.0  # between two looks at the job's nodes in Slurm
STOPPED_S = 15.0  # an agent that cannot end its ranks by then is lost


class Plan(NamedTuple):
    """What to run. `nodes_wanted` of the allocation's `node_names` train, the rest are spares."""

    folder: Path  # the attempt's
    command: tuple[str, ...]
    node_names: tuple[str, ...]
    nodes_wanted: int
    processes: int
    restarts: int
    checkpoints: Path | None
    sections: SectionLimits


@dataclass
class AgentHandle:
    """A node's agent as the coordinator sees it."""

    node: str
    link: Link
    heard: float
    views: dict[int, Message] = field(default_factory=dict)

    def silent(self, now: float, patience_s: float) -> bool:
        return now - self.heard > patience_s


class _Outcome(NamedTuple):
    """Why a generation ended; `exit` is that of the rank that brought it about, if one did."""

    cause: Cause
    suspects: tuple[str, ...] = ()
    error: str = ""
    exit: RankExit | None = None


class Coordinator:
    """One job. `start_agents(environment)` starts the agents; returns a process to end later."""

    def __init__(
        self,
        plan: Plan,
        start_agents: Callable[[dict[str, str]], subprocess.Popen[bytes]],
        *,
        host: str,
        job_id: int = 0,
        allocation: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.plan = plan
        self._allocation = allocation
        self.log = EventLog(plan.folder / EVENTS_NAME)
        self.terminated = False
        self._start_agents = start_agents
        self._host = host
        self._job_id = job_id
        self._attempt = int(plan.folder.name) if plan.folder.name.isdigit() else 1
        self._agents: dict[str, AgentHandle] = {}
        self._lost: set[str] = set()
        self._generation = 0
        self._history = read_history(plan.folder)
        self._reset()

    def _reset(self) -> None:
        self._exits: list[RankExit] = []
        self._done: set[int] = set()
        self._ports: list[int] = []
        self._stopped: set[str] = set()
        self._stacks: dict[int, tuple[str, ...]] = {}
        self._stacks_of: set[str] = set()
        self._patience_s = SILENT_S
        ranks = self.plan.nodes_wanted * self.plan.processes
        self._stragglers = StragglerWatch(ranks)

    def run(self) -> int:
        """Until the job is over; returns its exit code."""
        key = new_key()
        listener = Listener(key)
        self._listener = listener
        step = self._start_agents(
            {ADDRESS_VARIABLE: f"{self._host}:{listener.port}", KEY_VARIABLE: key}
        )
        self._step = step
        try:
            active = self._gather()
            if active is None:
                return self._nobody_came()
            return self._generations(active)
        finally:
            self._dismiss()
            listener.close()
            # srun would wait for the agent of a dead node until Slurm notices it.
            _end_step(step, patience_s=0.3 if self._lost else 3.0)

    def _generations(self, active: list[str]) -> int:
        while True:
            outcome = self._run_generation(active)
            ending = self._ended(active, outcome)
            decision = self._decide(ending, active)
            self.log.say("decided", _in_words(decision), generation=self._generation)
            if isinstance(decision, UseSpare):
                active = self._replace(active, decision.replaced)
            elif not isinstance(decision, RestartInPlace):
                self._write_failure(outcome)
                return _exit_code(outcome)

    def _decide(self, ending: Ending, active: list[str]) -> Decision | None:
        """None: done, or told to end."""
        self._history.append(ending)
        if ending.cause in (Cause.DONE, Cause.STOPPED) or self.terminated:
            return None
        means = Means(
            in_allocation=True,
            spares=tuple(self._spares(active)),
            worlds=(self.plan.nodes_wanted,),
        )
        # Whether another job may follow is the supervisor's to say.
        limits = Limits(attempts=sys.maxsize, restarts=self.plan.restarts)
        return decide(self._history, means, limits)

    # -- the agents

    def _gather(self) -> list[str] | None:
        """The nodes that train first, in the allocation's order; None when too few came up."""
        plan = self.plan
        started = time.monotonic()
        enough_at: float | None = None
        while len(self._agents) < len(plan.node_names):
            self._admit()
            self._listen()
            now = time.monotonic()
            if enough_at is None and len(self._agents) >= plan.nodes_wanted:
                enough_at = now
            if enough_at is not None and now - enough_at > LATE_S:
                break
            if now - started > GATHER_S or self._step.poll() is not None or self.terminated:
                break
        names = [name for name in plan.node_names if name in self._agents]
        missing = [name for name in plan.node_names if name not in self._agents]
        if missing:
            self.log.say(
                "agents_missing", f"no agent on {', '.join(missing)}", nodes=tuple(missing)
            )
        return names[: plan.nodes_wanted] if len(names) >= plan.nodes_wanted else None

    def _admit(self) -> None:
        while not self._listener.admitted.empty():
            link = self._listener.admitted.get()
            try:
                hello = link.receive(SILENT_S)
            except LinkError:
                hello = None
            node = hello["node"] if hello else ""
            if not hello or node not in self.plan.node_names or node in self._agents:
                link.close()
                continue
            self._agents[node] = AgentHandle(node, link, time.monotonic())

    def _listen(self) -> None:
        """Take in what the agents say, for up to a tick."""
        by_connection = {agent.link.connection: agent for agent in self._agents.values()}
        if not by_connection:
            time.sleep(TICK_S)
        for ready in wait(list(by_connection), TICK_S) if by_connection else ():
            agent = by_connection[ready]  # type: ignore[index]
            try:
                while (message := agent.link.receive()) is not None:
                    agent.heard = time.monotonic()
                    self._take(agent, message)
            except LinkError:
                self._lose(agent)
        now = time.monotonic()
        for agent in [a for a in self._agents.values() if a.silent(now, self._patience_s)]:
            self._lose(agent)
        held = self._allocation()
        for agent in [a for a in self._agents.values() if held and a.node not in held]:
            self._lose(agent, f"Slurm took {agent.node} out of the job")

    def _take(self, agent: AgentHandle, message: Message) -> None:
        event = message["event"]
        if event == "port":
            self._ports.append(int(message["port"]))
        elif event == "terminated":
            self.terminated = True
        elif message.get("generation") != self._generation:
            return  # of ranks that are gone
        elif event == "beat":
            agent.views = {view["rank"]: view for view in message["ranks"]}
            for view in message["ranks"]:
                self._look_for_stragglers(agent, view)
        elif event == "exited":
            self._take_exit(agent, message)
        elif event == "stopped":
            self._stopped.add(agent.node)
        elif event == "stacks":
            self._stacks_of.add(agent.node)
            self._stacks |= {one["rank"]: tuple(one["frames"]) for one in message["stacks"]}
        elif event == "started" and message["orphans"]:
            self.log.say(
                "orphans_ended",
                f"{message['orphans']} processes of earlier ranks on {agent.node}",
                generation=self._generation,
                nodes=(agent.node,),
            )

    def _take_exit(self, agent: AgentHandle, message: Message) -> None:
        if message["code"] == EXIT_DONE:
            self._done.add(message["rank"])
            return
        self._exits.append(
            RankExit(
                message["rank"], agent.node, message["code"], message["error"], message["ended"]
            )
        )

    def _lose(self, agent: AgentHandle, why: str = "") -> None:
        """Closed on our side too: an agent that was only slow then ends its ranks itself."""
        agent.link.close()
        del self._agents[agent.node]
        self._lost.add(agent.node)
        self.log.say(
            "node_lost",
            why or f"no word from the agent on {agent.node}",
            generation=self._generation,
            nodes=(agent.node,),
        )

    def _spares(self, active: Sequence[str]) -> Iterator[str]:
        return (n for n in self.plan.node_names if n in self._agents and n not in active)

    def _replace(self, active: list[str], replaced: Sequence[str]) -> list[str]:
        spares = self._spares(active)
        bad = {ending for entry in self._history for ending in entry.suspects}
        fit = iter(sorted(spares, key=lambda node: (node in bad, active.count(node))))
        swapped = [next(fit) if node in replaced else node for node in active]
        for old, new in zip(active, swapped, strict=True):
            if old != new:
                self.log.say(
                    "spare_used", f"{new} in place of {old}", generation=self._generation,
                    nodes=(new,),
                )  # fmt: skip
        return swapped

    def _send(self, to: Sequence[str], **order: object) -> None:
        for node in to:
            agent = self._agents.get(node)
            if agent is None:
                continue
            try:
                agent.link.send(dict(order))
            except LinkError:
                self._lose(agent)

    # -- one generation

    def _run_generation(self, active: list[str]) -> _Outcome:
        self._generation += 1
        self._reset()
        folder = self.plan.folder
        publish.write_text(folder / checkpoints.GENERATION_NAME, f"{self._generation}\n")
        (folder / FIRST_FAILURE_NAME).unlink(missing_ok=True)
        from_step = self._newest_step()
        self._from_step = from_step
        for agent in self._agents.values():
            agent.views = {}
        self.log.say(
            "started",
            f"generation {self._generation} from step {from_step}",
            generation=self._generation,
            nodes=tuple(active),
        )
        lost = self._start(active)
        outcome = lost or self._watch(active)
        if outcome.cause is not Cause.DONE:
            grace_s = GRACEFUL_S if outcome.cause is Cause.STOPPED else 0.0
            self._stop(active, grace_s=grace_s)
        return outcome

    def _start(self, active: list[str]) -> _Outcome | None:
        """Have the ranks started; an outcome when a node is lost before."""
        wish = 20_000 + (self._job_id * 11 + self._generation * 1009) % 12_000
        self._send(active[:1], order="port", wish=wish)
        while not self._ports:
            self._listen()
            gone = self._gone(active)
            if gone:
                return gone
        for node_rank, node in enumerate(active):
            self._send(
                [node],
                order="start",
                generation=self._generation,
                node_rank=node_rank,
                nodes=len(active),
                master_addr=self._agents[active[0]].link.peer if active[0] in self._agents else "",
                master_port=self._ports[0],
            )
        return self._gone(active)

    def _watch(self, active: list[str]) -> _Outcome:
        ranks = len(active) * self.plan.processes
        failed_at: float | None = None
        while True:
            self._listen()
            gone = self._gone(active)
            if gone:
                return gone
            now = time.monotonic()
            if self._exits:
                failed_at = failed_at or now
                root = root_exit(self._exits)
                # Who stopped on request lets the others save; a death is final at once.
                patience_s = GRACEFUL_S if root.code == EXIT_RESUME else SETTLE_S
                ended = len(self._done) + len(self._exits)
                if ended >= ranks or now - failed_at >= patience_s:
                    return _outcome_of(root)
            elif len(self._done) >= ranks:
                return _Outcome(Cause.DONE)
            else:
                hung = self._hung(active)
                if hung:
                    return hung

    def _gone(self, active: list[str]) -> _Outcome | None:
        gone = tuple(node for node in active if node not in self._agents)
        if not gone:
            return None
        # The ranks of a lost node take others with them; that is not those others' doing.
        return _Outcome(Cause.NODE_LOST, gone, f"no word from {', '.join(gone)}")

    def _stop(self, active: list[str], *, grace_s: float) -> None:
        """End what is left of the generation's ranks, so that none runs beside the next one's."""
        if grace_s:
            # Those that are still saving have had their time in `_watch`.
            grace_s = 5.0
        self._stopped = set()
        self._send(active, order="stop", grace_s=grace_s)
        deadline = time.monotonic() + grace_s + STOPPED_S
        while any(n in self._agents and n not in self._stopped for n in active):
            self._listen()
            if time.monotonic() > deadline:
                for node in active:
                    if node in self._agents and node not in self._stopped:
                        self._lose(self._agents[node])

    def _hung(self, active: list[str]) -> _Outcome | None:
        views = self._views(active)
        late = overdue(views, self.plan.sections)
        if not late:
            return None
        self._ask_for_stacks(active)
        views = self._views(active)
        if not overdue(views, self.plan.sections):
            return None  # it was only slow
        named = culprits(views)
        told = [describe_hang(view, self.plan.sections) for view in named or late]
        detail = "; ".join(told[:4])
        nodes = tuple(sorted({view.node for view in named}))
        self.log.say(
            "hang",
            detail if named else f"{detail}; nothing tells which rank the others wait for",
            generation=self._generation,
            nodes=nodes,
            facts={
                "ranks": [view.rank for view in named],
                "stacks": {str(view.rank): view.stack for view in views},
            },
        )
        return _Outcome(Cause.HUNG, nodes, detail[:600])

    def _ask_for_stacks(self, active: list[str]) -> None:
        self._stacks_of = set()
        self._patience_s = STACKS_S
        self._send(active, order="stacks")
        deadline = time.monotonic() + STACKS_S
        while time.monotonic() < deadline and any(
            n in self._agents and n not in self._stacks_of for n in active
        ):
            self._listen()
        self._patience_s = SILENT_S
        self._beat_anew(active)

    def _beat_anew(self, active: list[str]) -> None:
        """Wait for each agent's next beat: those before the stacks are old."""
        for node in active:
            if node in self._agents:
                self._agents[node].heard = time.monotonic()
                self._agents[node].views = {}
        deadline = time.monotonic() + SILENT_S
        while time.monotonic() < deadline and any(
            n in self._agents and not self._agents[n].views for n in active
        ):
            self._listen()

    def _views(self, active: list[str]) -> list[RankView]:
        """Of the ranks that have spoken; a trainer without heartbeats has none."""
        return [
            RankView(
                view["rank"], node, Section(view["section"]), view["age_s"], view["step"],
                view["changes"], view["state"], self._stacks.get(view["rank"], ()),
            )
            for node in active
            if node in self._agents
            for view in self._agents[node].views.values()
            if "section" in view
        ]  # fmt: skip

    def _look_for_stragglers(self, agent: AgentHandle, view: Message) -> None:
        if "steps" not in view:
            return
        steps = [(int(number), float(seconds)) for number, seconds in view["steps"]]
        for straggler in self._stragglers.add(view["rank"], steps):
            node = self._node_of(straggler.rank)
            self.log.say(
                "straggler",
                f"rank {straggler.rank} on {node} needs {straggler.ratio:.2f} times as long as "
                f"the others, seen at step {straggler.step}",
                generation=self._generation,
                nodes=(node,),
                facts=straggler._asdict(),
            )

    def _node_of(self, rank: int) -> str:
        for agent in self._agents.values():
            if rank in agent.views:
                return agent.node
        return "?"

    # -- what is written

    def _ended(self, active: list[str], outcome: _Outcome) -> Ending:
        ending = Ending(
            self._attempt,
            self._generation,
            outcome.cause,
            tuple(active),
            outcome.suspects,
            outcome.error,
            self._from_step,
            self._newest_step(),
        )
        self.log.say(
            ENDED,
            describe(ending),
            generation=self._generation,
            nodes=outcome.suspects,
            facts=ending_facts(ending),
        )
        return ending

    def _newest_step(self) -> int:
        if self.plan.checkpoints is None:
            return 0
        newest = checkpoints.newest_complete(self.plan.checkpoints)
        return newest.step if newest else 0

    def _write_failure(self, outcome: _Outcome) -> None:
        if outcome.cause is Cause.DONE:
            return
        failed = outcome.exit
        record = {
            "exit_code": _exit_code(outcome),
            "rank": failed.rank if failed else -1,
            "host": failed.node if failed else ", ".join(outcome.suspects),
            "error": outcome.error,
            "cause": outcome.cause,
            "nodes": outcome.suspects,
        }
        # On one line, the code first: the batch script reads it.
        publish.write_text(self.plan.folder / FIRST_FAILURE_NAME, json.dumps(record) + "\n")

    def _nobody_came(self) -> int:
        missing = tuple(name for name in self.plan.node_names if name not in self._agents)
        self._write_failure(_Outcome(Cause.NODE_LOST, missing, "the node agents did not come up"))
        return 1

    def _dismiss(self) -> None:
        self._send(list(self._agents), order="leave")


def _outcome_of(root: RankExit) -> _Outcome:
    cause = cause_of_exit(root.code, root.error)
    suspects = () if cause in (Cause.STOPPED, Cause.USER_FAULT, Cause.STORAGE) else (root.node,)
    return _Outcome(cause, suspects, root.error, root)


def _exit_code(outcome: _Outcome) -> int:
    by_cause = {
        Cause.DONE: EXIT_DONE,
        Cause.STOPPED: EXIT_RESUME,
        Cause.USER_FAULT: EXIT_NEVER_AGAIN,
    }
    if outcome.cause in by_cause:
        return by_cause[outcome.cause]
    return outcome.exit.code if outcome.exit else 1


def _in_words(decision: Decision | None) -> str:
    if decision is None:
        return "the job ends"
    if isinstance(decision, RestartInPlace):
        return f"start the ranks again on the same nodes: {decision.reason}"
    if isinstance(decision, UseSpare):
        return f"a spare for {', '.join(decision.replaced)}: {decision.reason}"
    return f"the job ends for the supervisor to go on: {decision.reason}"


def _end_step(step: subprocess.Popen[bytes], *, patience_s: float) -> None:
    """The agents leave by themselves, and their srun with them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            step.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            step.send_signal(number)
    step.wait()


def agent_command(chosen: argparse.Namespace) -> list[str]:
    """What every agent runs."""
    return [
        *(chosen.agent_word or [sys.executable]), "-m", "training.cluster.node_agent",
        "--attempt-dir", str(chosen.attempt_dir), "--processes", str(chosen.processes),
        "--", *chosen.command,
    ]  # fmt: skip


def srun_command(chosen: argparse.Namespace, nodes: int) -> list[str]:
    """One agent per node; a node that dies takes neither the step nor the job with it.

    From 22.05 on, srun does not take --cpus-per-task over from sbatch.
    """
    return [
        "srun", "--export=ALL", "--mpi=none", "--no-kill", "--kill-on-bad-exit=0", "--label",
        f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        f"--cpus-per-task={chosen.cpus}", *chosen.srun_option, *agent_command(chosen),
    ]  # fmt: skip


class HeldNodes:
    """The nodes that Slurm says the job holds, looked up three times a minute in the background.

    A node whose slurmd is dead is taken out of a job that was submitted with --no-kill, while its
    ranks live on; it may be given to another job as soon as its slurmd is back.
    """

    def __init__(self, job_id: int) -> None:
        self._nodes: tuple[str, ...] = ()
        self._job_id = str(job_id)
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> Sequence[str]:
        """Empty while nobody can say."""
        return self._nodes

    def _watch(self) -> None:
        client = SlurmClient(delays_s=())
        while True:
            time.sleep(_HELD_S)
            try:
                info = client.job(self._job_id)
            except (TransientError, UserError):
                continue  # nothing is concluded from silence
            self._nodes = info.nodes if info and info.state == "RUNNING" else ()


@contextmanager
def _obeying_signals(coordinator: Coordinator) -> Iterator[None]:
    """SIGTERM (scancel, preemption, the time limit): whatever ends now is not started again."""

    def note(*_: object) -> None:
        coordinator.terminated = True

    before = signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="coordinator", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--attempt-dir", type=Path, required=True)
    parser.add_argument("--node-names", required=True, help="the allocation's nodes, by commas")
    parser.add_argument("--host", default="127.0.0.1", help="this machine's address for them")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--cpus", type=int, default=1, help="of a node's agent and ranks")
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--sections", default="{}", help="SectionLimits as JSON")
    parser.add_argument("--srun-option", action="append", default=[], help="for the agents' step")
    parser.add_argument(
        "--agent-word",
        action="append",
        default=[],
        help="the words that start Python for an agent, such as those of a container's runtime",
    )
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def plan_of(chosen: argparse.Namespace) -> Plan:
    return Plan(
        chosen.attempt_dir,
        tuple(chosen.command),
        tuple(chosen.node_names.split(",")),
        chosen.nodes,
        chosen.processes,
        chosen.restarts,
        chosen.checkpoints,
        SectionLimits.model_validate_json(chosen.sections),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's text."""
    chosen = parse(arguments)
    plan = plan_of(chosen)

    def start_agents(environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = srun_command(chosen, len(plan.node_names))
        return subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL
        )

    job_id = int(os.environ["SLURM_JOB_ID"])
    coordinator = Coordinator(
        plan, start_agents, host=chosen.host, job_id=job_id, allocation=HeldNodes(job_id)
    )
    with _obeying_signals(coordinator):
        return coordinator.run()


if __name__ == "__main__":
    sys.exit(main())
