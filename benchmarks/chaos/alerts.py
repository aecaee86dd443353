"""Faults under the eyes of a real Prometheus: each must fire the alert that is meant for it."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.chaos.lab import Lab, Run
from benchmarks.chaos.prometheus import Prometheus, count_accepted, rules, sped_up
from benchmarks.chaos.result import Result

PATIENCE_S = 120.0
AFTER_S = 5.0  # in which no other alert may join
LIVES_S = 2.0  # ranks that are to be killed again: Prometheus looks once a second
_STEP_S = 0.2  # many runs at once on few cores


class Watched:
    """A run beside others. This one has no fault, and nothing may fire for it."""

    alert = ""
    layout: dict[str, Any] = {}  # noqa: RUF012 - of the class

    def __init__(self, lab: Lab, targets: str) -> None:
        settings = {"steps": 100_000, "step_s": _STEP_S}
        layout = {"step_limit_s": 600.0, "metrics_targets": targets, **self.layout}
        self.run: Run = lab.run(f"watched-{self.alert or 'clean'}", settings, **layout).supervise()
        self.fired: set[str] = set()

    def strike(self) -> None:
        """The fault begins."""

    def go_on(self) -> None:
        """Called at each look until the alert is there."""

    def end(self) -> None:
        """The fault is over."""


class SilentAgent(Watched):
    """A node's agent is stopped; a spare trains in its place, and it is asked in vain."""

    alert = "DsmAgentDown"
    layout = {"spares": 1}  # noqa: RUF012

    def strike(self) -> None:
        [self._agent] = self.run.processes(self.run.nodes()[1], ranks=False)
        os.kill(self._agent, signal.SIGSTOP)

    def end(self) -> None:
        os.kill(self._agent, signal.SIGCONT)


class Hang(Watched):
    """A rank waits in its data loader, within the time that a step may take."""

    alert = "DsmStepsStandStill"
    fault = "hang"

    def strike(self) -> None:
        (self.run.stage / "faults" / f"{self.fault}-1").touch()

    def end(self) -> None:
        os.kill(self.run.rank_pid(self.run.nodes()[1]), signal.SIGKILL)


class StuckInKernel(Hang):
    """A rank waits in the kernel."""

    alert = "DsmRankStuckInKernel"
    fault = "stuck"


class Restarts(Watched):
    """The first rank is killed again and again, each time after some steps."""

    alert = "DsmRanksKeepRestarting"

    def go_on(self) -> None:
        ledger = self.run.ledger()
        pid = ledger[-1]["pid"]
        since = next(line["time"] for line in ledger if line["pid"] == pid)
        if time.time() - since > LIVES_S and Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)


def alerts(lab: Lab, short: bool) -> list[Result]:
    """C18: faults in runs beside each other, and a clean one; the alerts as Prometheus has them."""
    shipped = rules()
    targets = lab.folder / "metrics-targets"
    with Prometheus(lab.folder / "prometheus", targets).runs() as server:
        kinds = (Watched, SilentAgent, Hang, StuckInKernel, Restarts)
        watched = [kind(lab, str(targets)) for kind in kinds]
        for one in watched:
            one.run.until_step(5)
        metrics = sorted({m for rule in shipped for m in re.findall(r"up|dsm_\w+", rule["expr"])})
        clean = watched[0].run
        clean.until(lambda: all(map(server.query, metrics)), "had all metrics in Prometheus", 30)
        spoken = _watch(server, watched)
    exactly = sum(one.fired == {one.alert} for one in watched if one.alert)
    quiet = sum(len(one.fired) for one in watched if not one.alert)
    print(*(f"  {one.alert or 'clean'}: {sorted(one.fired)}" for one in watched), sep="\n")
    total = len(shipped)
    return [
        Result(f"expressions that promtool takes, of {total}", count_accepted(), "", f"= {total}"),
        Result(f"expressions with data at their fault, of {total}", spoken, "", f"= {total}"),
        Result(f"faults that fired exactly their alert, of {total}", exactly, "", f"= {total}"),
        Result("alerts for a clean run beside them", quiet, "", "= 0"),
    ]


def _watch(server: Prometheus, watched: list[Watched]) -> int:
    """Strike all and look until each one's alert was there, and `AFTER_S` more. Returns whose
    expressions had data then; `fired` of all is filled."""
    expressions = {rule["alert"]: sped_up(rule)["expr"] for rule in rules()}
    going_on = [one for one in watched if one.alert]
    spoken: set[str] = set()
    for one in going_on:
        one.strike()
    deadline = time.monotonic() + PATIENCE_S
    while going_on and time.monotonic() < deadline:
        _note(server, watched)
        for one in [one for one in going_on if one.alert in one.fired]:
            spoken |= {one.alert} if server.query(expressions[one.alert]) else set()
            one.end()
            going_on.remove(one)
        for one in going_on:
            one.go_on()
        time.sleep(0.2)
    until = time.monotonic() + AFTER_S
    while time.monotonic() < until:
        _note(server, watched)
        time.sleep(0.5)
    return len(spoken)


def _note(server: Prometheus, watched: list[Watched]) -> None:
    for alert, run in server.firing():
        for one in watched:
            if run == one.run.stage.parent.name:
                one.fired.add(alert)
