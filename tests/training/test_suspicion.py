"""Whom the loss, or the absence, of nodes points at: the table, then real agents."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks_on_this_machine import Job

from training.cluster import fleet
from training.cluster.health.results import Severity
from training.cluster.job import FIRST_FAILURE_NAME
from training.cluster.recovery import Cause
from training.cluster.suspicion import (
    Finding,
    Loss,
    Suspicion,
    of_absence,
    of_findings,
    of_losses,
)

CLOSED, SILENT, TAKEN = Loss.CLOSED, Loss.SILENT, Loss.TAKEN
SLEEPS = ("-c", "import time; time.sleep(600)")
UNFIT = json.dumps({"shared": ["/nonexistent"], "disks": []})


@pytest.mark.parametrize(
    ("lost", "others", "cause", "suspects"),
    [
        # one of them: its own fault, but Slurm alone may call it lost
        ({"n1": SILENT}, 1, Cause.NODE_SILENT, ["n1"]),
        ({"n1": CLOSED}, 2, Cause.NODE_SILENT, ["n1"]),
        ({"n1": SILENT}, 7, Cause.NODE_SILENT, ["n1"]),
        ({"n1": TAKEN}, 7, Cause.NODE_LOST, ["n1"]),
        ({"n0": CLOSED}, 7, Cause.NODE_SILENT, ["n0"]),
        # a few of many
        ({"n1": SILENT, "n2": SILENT}, 7, Cause.NODE_SILENT, ["n1", "n2"]),
        ({"n1": SILENT, "n2": SILENT}, 4, Cause.NODE_SILENT, ["n1", "n2"]),
        # most at once: the coordinator's network, or their common step
        ({"n1": SILENT, "n2": SILENT}, 3, Cause.NODE_SILENT, ["n0"]),
        ({"n1": SILENT, "n2": SILENT}, 2, Cause.NODE_SILENT, ["n0"]),
        ({"n1": CLOSED, "n2": CLOSED}, 2, Cause.NODE_SILENT, []),
        ({"n1": CLOSED, "n2": SILENT}, 2, Cause.NODE_SILENT, []),
        ({"n0": CLOSED, "n1": CLOSED, "n2": CLOSED}, 2, Cause.NODE_SILENT, []),
        # what Slurm says explains the rest
        ({"n1": TAKEN, "n2": SILENT, "n3": SILENT}, 3, Cause.NODE_LOST, ["n1"]),
    ],
)
def test_who_is_suspected_of_a_loss(
    lost: dict[str, Loss], others: int, cause: Cause, suspects: list[str]
) -> None:
    found = of_losses(lost, [f"n{number + 1}" for number in range(others)], "n0")
    assert (found.cause, list(found.nodes)) == (cause, suspects)
    assert found.why


@pytest.mark.parametrize(
    ("missing", "unfit", "of", "step", "cause", "suspects"),
    [
        # one node among others
        (["n1"], [], 2, "", Cause.NODE_SILENT, ["n1"]),
        (["n1", "n2"], [], 8, "", Cause.NODE_SILENT, ["n1", "n2"]),
        ([], ["n1"], 4, "", Cause.UNFIT, ["n1"]),
        (["n2"], ["n1"], 8, "", Cause.UNFIT, ["n1"]),
        ([], ["n0"], 1, "srun ended with 4", Cause.UNFIT, ["n0"]),
        # most or all
        (["n0", "n1"], [], 2, "", Cause.NOT_STARTED, []),
        (["n1", "n2", "n3"], [], 4, "", Cause.NOT_STARTED, []),
        ([], ["n0", "n1"], 2, "srun ended with 4", Cause.NOT_STARTED, []),
        (["n1"], ["n0", "n2"], 4, "", Cause.NOT_STARTED, []),
        # srun itself
        (["n0"], [], 1, "srun ended with 1", Cause.NOT_STARTED, []),
        (["n1"], [], 8, "srun ended with 1", Cause.NOT_STARTED, []),
    ],
)
def test_who_is_suspected_of_not_coming(
    missing: list[str], unfit: list[str], of: int, step: str, cause: Cause, suspects: list[str]
) -> None:
    found = of_absence(missing, dict.fromkeys(unfit, "shared /x: drain"), of, step)
    assert (found.cause, list(found.nodes)) == (cause, suspects)
    assert (step if cause is Cause.NOT_STARTED else "") in found.why
    assert "shared /x: drain" in found.why or not unfit


NO_DISK = Finding(Severity.DRAIN, "disk /: drain")


@pytest.mark.parametrize(
    ("cause", "findings", "suspects"),
    [
        (Cause.RANK_FAILED, {"n1": NO_DISK}, ["n1"]),
        (Cause.HUNG, {"n1": NO_DISK}, ["n1"]),
        (Cause.RANK_FAILED, {"n1": Finding(Severity.WARN, "")}, ["n0"]),
        (Cause.RANK_FAILED, {"n3": NO_DISK}, ["n0"]),  # a spare
        (Cause.RANK_FAILED, {"n1": NO_DISK, "n2": NO_DISK}, ["n0"]),  # most: not their fault
        (Cause.USER_FAULT, {"n1": NO_DISK}, ["n0"]),
        (Cause.DONE, {"n1": NO_DISK}, ["n0"]),
    ],
)
def test_what_checks_found_explains_a_failure(
    cause: Cause, findings: dict[str, Finding], suspects: list[str]
) -> None:
    seen = Suspicion(cause, ("n0",), "ValueError: no")
    found = of_findings(seen, findings, ("n0", "n1", "n2"))
    assert list(found.nodes) == suspects
    assert (found == seen) == (suspects == ["n0"])
    if found != seen:
        assert found.cause is Cause.UNFIT
        assert found.why == "n1: disk /: drain; ValueError: no"


def test_a_node_whose_results_cannot_be_trusted_is_replaced_while_it_trains(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    """Only a GPU or a memory module is as ill as that: the agent is one that says so."""
    says = (
        "import os; from training.cluster import agent_link as a\n"
        "host, _, port = os.environ[a.ADDRESS_VARIABLE].rpartition(':')\n"
        "link = a.connect(host, int(port), os.environ[a.KEY_VARIABLE])\n"
        "link.send({'event': 'hello', 'node': 'n1'})\n"
        "while True:\n"
        "    order = link.receive(60)\n"
        "    if order['order'] == 'leave': break\n"
        "    told = {'event': 'health', 'severity': 'isolate', 'why': 'gpus: GPU 3 is lost'}\n"
        "    if order['order'] == 'stop':\n"
        "        told = {'event': 'stopped', 'generation': order['generation']}\n"
        "    link.send({'node': 'n1', **told})\n"
    )
    instead = {"n1": shlex.join([sys.executable, "-c", says])}
    source = "import os, time; time.sleep(600 * (os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))"
    run = job("-c", source, nodes=2, spares=1, restarts=1, instead=instead)
    assert run.wait() == 0
    assert [event.nodes for event in run.events("node_unwell")] == [("n1",)]
    assert [event.nodes for event in run.events("started")] == [("n0", "n1"), ("n0", "n2")]
    assert "a node is not fit on n1: gpus: GPU 3 is lost" in run.events("ended")[0].detail


def test_an_agent_tells_what_its_checks_find_while_it_trains(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    limits = json.dumps({"shared": [str(shared)], "disks": [], "skip": ["processes"]})
    leave = tmp_path / "leave"
    source = f"import os, sys, time\nwhile not os.path.exists({str(leave)!r}): time.sleep(0.1)"
    run = job("-c", source, health={"n0": limits}, health_every_s=0.1)
    run.until(lambda: run.events("started"), "started")
    shared.rmdir()
    run.until(lambda: run.events("node_unwell"), "said that it is not well")
    shared.mkdir()
    run.until(lambda: run.events("node_well"), "said that it is well again")
    leave.touch()
    assert run.wait() == 0


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def start(*command: str, **layout: Any) -> Job:
        return Job(tmp_path / "1", *(command or SLEEPS), processes=1, **layout).start()

    return start


def how_it_ended(job: Job) -> tuple[str, tuple[str, ...], str]:
    assert job.wait() == 1
    [ended] = job.events("ended")
    record = json.loads((job.folder / FIRST_FAILURE_NAME).read_text())
    assert (record["cause"], tuple(record["nodes"])) == (ended.facts["cause"], ended.nodes)
    return ended.facts["cause"], ended.nodes, record["error"]


def test_a_step_that_fails_at_once_is_no_nodes_fault(job: Callable[..., Job]) -> None:
    fails = 'echo "0: srun: error: pyxis: no such image: $SECONDS" >&2'
    cause, nodes, why = how_it_ended(job(nodes=3, instead=dict.fromkeys(("n0", "n1", "n2"), fails)))
    assert (cause, nodes) == ("not_started", ())
    assert why.startswith(
        "srun ended with 0, saying: srun: error: pyxis: no such image: 0; look at"
    )


def test_a_node_that_says_it_is_not_fit_is_suspected(job: Callable[..., Job]) -> None:
    cause, nodes, why = how_it_ended(job(nodes=3, health={"n2": UNFIT}))
    assert (cause, nodes) == ("node_unfit", ("n2",))
    assert why.startswith("shared /nonexistent: drain")


def test_a_check_that_fails_everywhere_convicts_nobody(job: Callable[..., Job]) -> None:
    cause, nodes, why = how_it_ended(job(nodes=2, health={"n0": UNFIT, "n1": UNFIT}))
    assert (cause, nodes) == ("not_started", ())
    assert ": shared /nonexistent: drain" in why


def test_a_spare_takes_the_place_of_an_unfit_node(job: Callable[..., Job]) -> None:
    started = time.monotonic()
    fit = job("-c", "pass", nodes=2, spares=1, health={"n1": UNFIT})
    assert fit.wait() == 0
    assert [event.nodes for event in fit.events("started")] == [("n0", "n2")]
    assert [event.nodes for event in fit.events("node_unfit")] == [("n1",)]
    assert time.monotonic() - started < fleet.LATE_S, "nobody waits for it"


@pytest.mark.parametrize(
    ("missing", "cause", "suspects"),
    [(["n2"], "node_silent", ("n2",)), (["n1", "n2"], "not_started", ())],
)
def test_nodes_that_never_come(
    job: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    missing: list[str],
    cause: str,
    suspects: tuple[str, ...],
) -> None:
    monkeypatch.setattr(fleet, "GATHER_S", 8.0)
    running = job(nodes=3, instead=dict.fromkeys(missing, "sleep 60"))
    assert how_it_ended(running)[:2] == (cause, suspects)


def running(job: Job, *nodes: str) -> list[int]:
    """The agents of `nodes`, once all ranks run."""
    job.until(lambda: all(job.pids(name, ranks=True) for name in job.names), "started all ranks")
    return [pid for node in nodes for pid in job.pids(node, ranks=False)]


def test_a_network_that_is_away_for_a_moment_costs_nothing(job: Callable[..., Job]) -> None:
    """The agents of all other nodes fall silent for longer than a single one may be."""
    started = job("-c", "import time; time.sleep(20)", nodes=3)
    agents = running(started, "n1", "n2")
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(fleet.SILENT_S + 3)
    for pid in agents:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.7)  # the one is heard again while the other is not yet
    assert started.wait() == 0
    assert not started.events("node_lost") and len(started.events("started")) == 1
    assert [event.event for event in started.events("cut_off")] == ["cut_off"]


def test_a_network_that_stays_away_convicts_no_other_node(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "CUT_OFF_S", 8.0)
    started = job(nodes=3, restarts=5)
    agents = running(started, "n1", "n2")
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert how_it_ended(started)[:2] == ("node_silent", ("n0",))
    finally:
        for pid in agents:
            os.kill(pid, signal.SIGKILL)


def test_agents_that_die_together_convict_nobody(job: Callable[..., Job]) -> None:
    started = job(nodes=3, restarts=5)
    for pid in running(started, "n0", "n1", "n2"):
        os.kill(pid, signal.SIGKILL)
    cause, nodes, why = how_it_ended(started)
    assert (cause, nodes) == ("node_silent", ())
    assert "look at job.log" in why
