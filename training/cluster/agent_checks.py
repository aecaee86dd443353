"""What a node agent checks: its node before and while ranks train, its link with another node.

`unfitness` looks before there are ranks. `NodeWatch` and `Exchange` run programs beside them, which
the agent looks at between two beats.
"""

from __future__ import annotations

import json
import math
import sys
import time

from training.cluster.agent_link import Message
from training.cluster.health.checks import (
    Situation,
    answer_within_s,
    check_command,
    host_name,
    read_answer,
    run_checks,
)
from training.cluster.health.config import NodeLimits
from training.cluster.health.processes import Scope
from training.cluster.health.results import CheckResult, Severity, worst
from training.cluster.rank_process import rank_environment
from training.cluster.side_task import SideTask


def unfitness(limits: NodeLimits) -> str:
    """Why this node may not train, "" when it may; what speaks against it goes to the job's log.

    Before there are threads: each check runs in a forked child. A spare takes an unfit node's
    place, or the attempt ends and the next one is without it.
    """
    # Leftovers are ended by the agent itself, and may still be dying of the last attempt.
    situation = Situation(Scope(host_name()), lambda job_id, folder: False)
    return _against(run_checks(limits, situation))


def _against(results: tuple[CheckResult, ...]) -> str:
    unfit = [result for result in results if result.severity >= Severity.DRAIN]
    for result in unfit:
        print(f"{host_name()} is not fit: {result.describe()}", flush=True)
    return "; ".join(result.describe() for result in unfit)


class NodeWatch:
    """The node's checks, every `every_s` seconds (0: never), in an interpreter of their own."""

    def __init__(self, limits: NodeLimits, every_s: float) -> None:
        self._limits = limits
        self._every_s = every_s
        self._due = time.monotonic() + every_s
        self._task: SideTask | None = None
        self._told = ""

    def news(self) -> Message | None:
        """Severity and reason, when what speaks against the node has changed since told last."""
        if self._task is None:
            if self._every_s and time.monotonic() >= self._due:
                command, within_s = check_command(self._limits), answer_within_s(self._limits)
                self._task = SideTask(command, rank_environment(), within_s)
            return None
        result = self._task.poll()
        if result is None:
            return None
        self._task, self._due = None, time.monotonic() + self._every_s
        results = read_answer(result, self._limits)
        why = _against(results)
        if why == self._told:
            return None
        self._told = why
        return {"severity": worst(result.severity for result in results).label, "why": why}

    def end(self) -> None:
        if self._task is not None:
            self._task.end()


class Exchange:
    """This node's part of all-reduces with other nodes, one after the other."""

    def __init__(self) -> None:
        self._task: SideTask | None = None
        self._answers = 0  # that it has given so far
        self._round = 0
        self._deadline = math.inf

    def begin(self, number: int, task: Message) -> None:
        """Round `number`: meet another node, as `training.cluster.health.pair.Task` says."""
        if self._deadline < math.inf:
            self.end()  # it waits for a node that is not going to come
        if self._task is None:
            command = [sys.executable, "-m", "training.cluster.health.pair"]
            self._task, self._answers = SideTask(command, rank_environment()), 0
        self._round, self._deadline = number, time.monotonic() + float(task["timeout_s"])
        self._task.say(json.dumps(task))

    def news(self) -> Message | None:
        """The answer to the round that was begun last, once."""
        if self._task is None or self._deadline == math.inf:
            return None
        # Libraries print lines of their own.
        said = [line for line in self._task.heard() if line.startswith("{")]
        if len(said) > self._answers:
            self._answers, answer = len(said), dict(json.loads(said[-1]))
        elif time.monotonic() >= self._deadline:
            answer = {"dead": "no end in time"}
        elif (result := self._task.poll()) is not None:
            answer = {"dead": result.last_words}
        else:
            return None
        self._deadline = math.inf
        if "gbytes" not in answer:
            self.end()  # what a failed exchange leaves in a process is not known
        return {"round": self._round, **answer}

    def end(self) -> None:
        if self._task is not None:
            self._task.end()
        self._task, self._deadline = None, math.inf
