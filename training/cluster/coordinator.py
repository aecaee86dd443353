"""Runs one job's ranks to their end, and starts them again inside the allocation when they fail.

The batch script starts it on the job's first node:

    python -m training.cluster.coordinator --attempt-dir DIR --nodes 2 --spares 1 --processes 8 \\
        --cpus 4 --restarts 100 --checkpoints DIR -- COMMAND

It starts one node agent on every node of the allocation by a single srun, has them measure the
links between the nodes (`--links`, `training.cluster.link_check`), picks `--nodes` of them to
train, and watches: ranks that exit, agents that fall silent (a lost node is noticed in seconds,
Slurm takes 25; whom that points at: `training.cluster.suspicion`), sections that take longer than
they may, ranks that are slower than the others.
When a generation of ranks has ended, `training.cluster.recovery` says what comes next: the same
nodes again, a spare in place of a bad one, or the end of the job, after which the supervisor goes
on. A generation's number is written to `DIR/generation` before its ranks start: a survivor of an
older one can publish no checkpoint.

Out: `DIR/events.jsonl`, `DIR/first-failure.json` (of the last generation), and the exit code of
the rank that brought the end about. Not covered: its own node. When that dies the job is over.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from training import checkpoints
from training.cluster.agent_link import ADDRESS_VARIABLE, KEY_VARIABLE, Listener, new_key
from training.cluster.evidence import ENDED, ending_facts, read_history
from training.cluster.fleet import Fleet, HeldNodes, NodesInSlurm
from training.cluster.generation import Generation, Outcome, Place
from training.cluster.health.results import Severity
from training.cluster.job import (
    EXIT_DONE,
    EXIT_NEVER_AGAIN,
    EXIT_RESUME,
    FIRST_FAILURE_NAME,
    LEAVE_FILE,
    STOP_FILE,
)
from training.cluster.job_plan import Plan, parse, plan_of, srun_command
from training.cluster.link_check import LinkCheck
from training.cluster.metrics_targets import targets_of
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
from training.cluster.step_output import StepOutput
from training.cluster.suspicion import (
    Suspicion,
    bad_links,
    of_absence,
    of_findings,
    of_links,
    without_pairs,
)
from training.run_events import EVENTS_NAME, EventLog
from workspace import publish

StartAgents = Callable[[dict[str, str]], subprocess.Popen[bytes]]


class Coordinator:
    """One job. `start_agents` is given what the agents' environment must hold."""

    def __init__(
        self,
        plan: Plan,
        start_agents: StartAgents,
        *,
        host: str,
        job_id: int = 0,
        held: HeldNodes = tuple,
    ) -> None:
        self.plan = plan
        self.terminated = False
        self._start_agents = start_agents
        self._host = host
        self._job_id = job_id
        self._log = EventLog(plan.folder / EVENTS_NAME)
        self._key = new_key()
        self._listener = Listener(self._key)
        self._fleet = Fleet(plan.node_names, self._listener, self._log, held)
        self._attempt = int(plan.folder.name) if plan.folder.name.isdigit() else 1
        self._history = read_history(plan.folder)

    def run(self) -> int:
        """Until the job is over; returns its exit code."""
        address = f"{self._host}:{self._listener.port}"
        step = self._start_agents({ADDRESS_VARIABLE: address, KEY_VARIABLE: self._key})
        output = StepOutput(step)
        wanted = self.plan.nodes_wanted
        try:
            came = self._fleet.gather(
                wanted, hopeless=lambda: self.terminated or step.poll() is not None
            )
            if len(came) < wanted:
                return self._too_few(_how_it_ended(step, output))
            active = self._with_good_links(came)
            return self._generations(active) if active else 1
        finally:
            self._fleet.send(list(self._fleet.agents), order="leave")
            self._listener.close()
            # srun would wait for the agent of a dead node until Slurm notices it.
            _end_step(step, patience_s=0.3 if self._fleet.lost else 3.0)

    def _generations(self, active: list[str]) -> int:
        while True:
            outcome, ending = self._run_generation(self._new_generation(), active)
            following = self._following(ending, active)
            if not following:
                self._write_failure(outcome)
                return _exit_code(outcome)
            active = following

    def _following(self, ending: Ending, active: list[str]) -> list[str]:
        """The nodes to go on with after `ending`; none: the job is over."""
        self._history.append(ending)
        decision = self._decide(ending, active)
        self._log.say("decided", _in_words(decision), generation=ending.generation)
        if isinstance(decision, UseSpare):
            return self._replace(ending.generation, active, decision.replaced)
        return active if isinstance(decision, RestartInPlace) else []

    def _with_good_links(self, came: list[str]) -> list[str]:
        """The nodes that train, of those that came, by what passes between them; none: the job is
        over."""
        plan, active = self.plan, came[: self.plan.nodes_wanted]
        if plan.links is None or len(active) < 2:
            return active
        number = self._earlier_generations() + 1
        check = LinkCheck(self._fleet, plan.links, gpu=plan.gpu, first_port=self._port(number))
        measured = check.run(came)
        found = of_links(measured.links, plan.links)
        measured.keep(plan.folder, plan.kept_links, found)
        facts = {"links": [link._asdict() for link in measured.links]}
        self._log.say("links", measured.in_words(), generation=number, facts=facts)
        if measured.terminated:
            self.terminated = True
            self._write_failure(Outcome(Cause.NOT_STARTED, (), "told to end before the ranks ran"))
            return []
        if found is None:
            return active
        if not found.nodes:
            bad = [link.nodes for link in bad_links(measured.links, plan.links)]
            self._log.say("bad_link", found.why, generation=number)
            apart = without_pairs(came, bad, plan.nodes_wanted)
            if apart or found.cause is Cause.LINK_SLOW:
                return apart or active
        return self._without_suspects(found, active)

    def _without_suspects(self, found: Suspicion, active: list[str]) -> list[str]:
        """The nodes to train on after what was found of their links; none: the job is over."""
        outcome = Outcome(*found)
        # An ending has a number of its own: the ranks' is the next one.
        ending = self._ending(self._new_generation(), outcome, active)
        self._say_ended(ending)
        following = self._following(ending, active)
        if not following:
            self._write_failure(outcome)
        return following

    def _earlier_generations(self) -> int:
        """Those of this attempt before Slurm itself started the job again: they stay fenced off."""
        try:
            return int((self.plan.folder / checkpoints.GENERATION_NAME).read_text("utf-8"))
        except FileNotFoundError:
            return 0

    def _new_generation(self) -> int:
        """Its number; from now on no older one can publish a checkpoint."""
        number = self._earlier_generations() + 1
        self._fleet.generation = number
        publish.write_text(self.plan.folder / checkpoints.GENERATION_NAME, f"{number}\n")
        return number

    def _port(self, generation: int) -> int:
        """To meet at, if it is free."""
        return 20_000 + (self._job_id * 11 + generation * 1009) % 12_000

    def _run_generation(self, number: int, active: list[str]) -> tuple[Outcome, Ending]:
        plan, nodes = self.plan, tuple(active)
        (plan.folder / FIRST_FAILURE_NAME).unlink(missing_ok=True)
        from_step = self._newest_step()
        started = f"generation {number} from step {from_step}"
        self._log.say("started", started, generation=number, nodes=nodes)
        place = Place(number, nodes, plan.processes, self._port(number))
        generation = Generation(
            self._fleet, place, plan.sections, self._log, partial(self._ask_to_leave, active)
        )
        outcome = generation.run()
        if outcome.cause is Cause.SLOW:
            outcome = self._after_leaving(outcome)
        self.terminated |= generation.terminated
        seen = Suspicion(outcome.cause, outcome.suspects, outcome.error)
        cause, suspects, error = of_findings(seen, self._fleet.findings, nodes)
        outcome = outcome._replace(cause=cause, suspects=suspects, error=error)
        ending = self._ending(number, outcome, active, from_step)
        self._say_ended(ending)
        return outcome, ending

    def _ending(
        self, number: int, outcome: Outcome, nodes: Sequence[str], from_step: int | None = None
    ) -> Ending:
        newest = self._newest_step()
        return Ending(
            self._attempt, number, outcome.cause, tuple(nodes), outcome.suspects, outcome.error,
            newest if from_step is None else from_step, newest, time.time(),
        )  # fmt: skip

    def _say_ended(self, ending: Ending) -> None:
        self._log.say(
            ENDED,
            describe(ending),
            generation=ending.generation,
            nodes=ending.suspects,
            facts=ending_facts(ending),
        )

    def _ask_to_leave(self, active: Sequence[str], node: str) -> bool:
        """Have all ranks save at the same step and leave, where a spare can come for `node`."""
        suspected = {suspect for ending in self._history for suspect in ending.suspects}
        fit = [spare for spare in self._spares(active) if spare not in suspected]
        if not self.plan.replace_stragglers or not fit:
            return False
        (self.plan.folder / STOP_FILE).touch()
        return True

    def _after_leaving(self, outcome: Outcome) -> Outcome:
        if (self.plan.folder / LEAVE_FILE).exists():
            return Outcome(Cause.STOPPED)  # in the meantime the job was told to end
        (self.plan.folder / STOP_FILE).unlink(missing_ok=True)
        return outcome

    def _decide(self, ending: Ending, active: list[str]) -> Decision | None:
        """None: done, or told to end."""
        if ending.cause in (Cause.DONE, Cause.STOPPED) or self.terminated:
            return None
        spares = tuple(self._spares(active))
        lost = tuple(node for node in active if node not in self._fleet.agents)
        worlds = (self.plan.nodes_wanted,)
        means = Means(True, spares, worlds, lost=lost, now=time.time())
        # Whether another job may follow is the supervisor's to say.
        limits = Limits(attempts=sys.maxsize, restarts=self.plan.restarts)
        return decide(self._history, means, limits)

    def _spares(self, active: Sequence[str]) -> list[str]:
        there = [n for n in self._fleet.present(self.plan.node_names) if n not in active]
        unwell = self._fleet.unwell(there, Severity.DRAIN)
        return [node for node in there if node not in unwell]

    def _replace(self, number: int, active: list[str], replaced: Sequence[str]) -> list[str]:
        suspected = {node for ending in self._history for node in ending.suspects}
        fit = iter(sorted(self._spares(active), key=lambda node: node in suspected))
        swapped = [next(fit) if node in replaced else node for node in active]
        for old, new in zip(active, swapped, strict=True):
            if old != new:
                said = f"{new} in place of {old}"
                self._log.say("spare_used", said, generation=number, nodes=(new,))
        return swapped

    def _newest_step(self) -> int:
        if self.plan.checkpoints is None:
            return 0
        return checkpoints.newest_step(self.plan.checkpoints)

    def _too_few(self, step: str) -> int:
        """Not enough agents came up. `step`: how their srun ended by itself, if it did."""
        plan, fleet = self.plan, self._fleet
        if self.terminated:  # Slurm knows why
            why = "told to end before the node agents had come up"
            self._write_failure(Outcome(Cause.NOT_STARTED, (), why))
            return 1
        missing = tuple(name for name in plan.node_names if name in {*fleet.missing(), *fleet.lost})
        found = of_absence(missing, fleet.unfit, len(plan.node_names), step)
        outcome = Outcome(*found)
        self._say_ended(self._ending(self._earlier_generations() + 1, outcome, plan.node_names))
        self._write_failure(outcome)
        return 1

    def _write_failure(self, outcome: Outcome) -> None:
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
        publish.write_text(self.plan.folder / FIRST_FAILURE_NAME, json.dumps(record) + "\n")


def _how_it_ended(step: subprocess.Popen[bytes], output: StepOutput) -> str:
    """A step that ended by itself, in words; "" while it runs."""
    code = step.poll()
    if code is None:
        return ""
    said = output.last_words()
    return f"srun ended with {code}" + (f", saying: {said}" if said else " and said nothing")


def _exit_code(outcome: Outcome) -> int:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's text."""
    chosen = parse(arguments)
    plan = plan_of(chosen)

    def start_agents(environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = srun_command(chosen, len(plan.node_names))
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    job_id = int(os.environ["SLURM_JOB_ID"])
    coordinator = Coordinator(
        plan, start_agents, host=chosen.host, job_id=job_id, held=NodesInSlurm(job_id)
    )
    with _obeying_signals(coordinator), targets_of(chosen.metrics_targets, plan.folder):
        return coordinator.run()


if __name__ == "__main__":
    sys.exit(main())
