"""The faults of the experiments, played on the peers (`benchmarks.chaos.peers`).

Each function plays one experiment's fault once and returns a cell for each of its rows, in their
order; rows that it leaves out have no meaning for a peer. "lost": not training again in time, or
over for Slurm. Where ours counts trials, `1 of 1` and `0 of 1` count the peer's one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos import endurance, memory
from benchmarks.chaos.disks import fill, small_disk
from benchmarks.chaos.jobs import SAYS, nasty
from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.peers import (
    LOST,
    PATIENCE_S,
    PATIENCE_SHORT_S,
    PeerRun,
    call,
    is_over,
    job_number,
    peer_run,
    variable,
)
from benchmarks.chaos.result import STEP_S
from training.goodput.account import account
from training.goodput.buckets import MICROSECONDS, StepSpan, Trace
from training.metrics import METRICS_NAME, MetricsFollower

Cells = tuple[str, ...]
FOR_EVER = 100_000


class Seen(NamedTuple):
    """By a process of a job."""

    arguments: list[str]
    environment: dict[str, str]


def rank_kill(lab: Lab, how: str, short: bool) -> Cells:
    """C1: training again; steps trained twice."""
    run = _training(lab, how)
    last, when = run.last_step(), time.time()
    os.kill(run.ranks()[0], signal.SIGKILL)
    seconds = run.seconds_to_recover(when, _patience(short))
    if seconds == LOST:
        return "lost", "lost"
    resumed = next(line for line in run.ledger() if line["time"] > when)
    return _number(seconds), str(last - resumed["step"] + 1)


def node_death_with_spare(lab: Lab, how: str, short: bool) -> Cells:
    """C2: a peer's job knows no spare, and waits for Slurm as in C3."""
    return _node_death(lab, how, short)[:1]


def node_death(lab: Lab, how: str, short: bool) -> Cells:
    """C3: training again; starts on the dead node."""
    return _node_death(lab, how, short)


@functools.cache
def _node_death(lab: Lab, how: str, short: bool) -> Cells:
    run = _training(lab, how)
    when = time.time()
    node = variable(run.ranks()[0], "SLURMD_NODENAME")
    lab.kill_node(run, node, silently=True)
    old = set(run.ranks(node))
    seconds = run.seconds_to_recover(when, _patience(short))
    again = len(set(run.ranks(node)) - old)
    _end(old)
    return ("lost", "lost") if seconds == LOST else (_number(seconds), str(again))


def random_kills(lab: Lab, how: str, short: bool) -> Cells:
    """C4: samples lost or repeated; end result right."""
    kills, steps = (3, 60) if short else (20, 400)
    targets = sorted(random.Random(11).sample(range(1, steps), kills))
    run = peer_run(lab, how, {"steps": steps, "step_s": STEP_S})
    for target in targets:
        run.until_step(target)
        when = time.time()
        os.kill(run.ranks()[0], signal.SIGKILL)
        if run.seconds_to_recover(when, _patience(short)) == LOST:
            break
    else:
        run.until_over(_patience(short))
    trained = [sample for line in run.ledger() for sample in line["samples"]]
    never = max(0, steps - run.last_step()) * run.config.settings.samples_per_step
    again = len(trained) - run.last_step() * run.config.settings.samples_per_step
    done = (run.stage / "result.json").exists()
    return str(never + again), str(int(done))


def hang(lab: Lab, how: str, short: bool) -> Cells:
    """C7: named; its stack; noticed after."""
    run = _training(lab, how)
    when, victim = time.time(), run.ranks()[0]
    os.kill(victim, signal.SIGSTOP)
    seconds = run.seconds_to_recover(when, _patience(short))
    _end([victim])
    said = run.said()
    named = int(bool(re.search(r"rank.?1\b.*(hang|hung|stuck|silent)", said)))
    stack = int("trainer.py" in said)
    noticed = "never" if seconds == LOST else _number(seconds)
    return f"{named} of 1", f"{stack} of 1", noticed


def time_limit(lab: Lab, how: str, short: bool) -> Cells:
    """C8: steps lost or repeated; left with the last step saved."""
    settings = {"steps": FOR_EVER, "step_s": STEP_S, "save_every": 10_000}
    run = peer_run(lab, how, settings, minutes=1, until_step=1)
    first, when = run.ledger()[0]["pid"], time.time()
    if run.seconds_to_recover(when, 60 + _patience(short)) == LOST:
        return "lost", "0 of 1"
    trained = max(line["step"] for line in run.ledger() if line["pid"] == first)
    resumed = next(line for line in run.ledger() if line["pid"] != first)
    lost = abs(resumed["step"] - trained - 1)
    return str(lost), f"{int(not lost)} of 1"


def bug(lab: Lab, how: str, short: bool) -> Cells:
    """C9: starts; nodes blamed."""
    run = peer_run(lab, how, {"steps": 60, "bug_rank": 1, "bug_step": 7}, until_step=6)
    return _starts(run), "0"


def straggler(lab: Lab, how: str, short: bool) -> Cells:
    """C10: named after; named."""
    settings = {"steps": 80, "slow_rank": 1, "slow_from": 20, "step_s": STEP_S}
    run = peer_run(lab, how, settings, until_step=80)
    if re.search(r"slow|straggl", run.said()):
        raise LabError(f"it names a slow rank:\n{run.said()[-500:]}")
    return "never", "0 of 1"


def zombie_writer(lab: Lab, how: str, short: bool) -> Cells:
    """C12: could publish; ended by those who follow.

    A node's daemons die and its first rank stands still: Slurm starts the job on other nodes. Then
    it wakes.
    """
    run = peer_run(lab, how, {"steps": FOR_EVER, "step_s": STEP_S, "survives": True}, until_step=25)
    zombie = run.ranks()[-1]
    parent = int(Path(f"/proc/{zombie}/stat").read_text().rsplit(")", 1)[1].split()[1])
    lab.kill_daemons(variable(zombie, "SLURMD_NODENAME"))
    _end([parent])
    os.kill(zombie, signal.SIGSTOP)  # after that: the kernel hangs up on a stopped orphan
    if run.seconds_to_recover(time.time(), PATIENCE_S) == LOST:
        _end([zombie])
        return "lost", "lost"
    if not Path(f"/proc/{zombie}").exists():
        raise LabError("the first rank ended with its node: no zombie")
    os.kill(zombie, signal.SIGCONT)
    report = run.stage / f"zombie-{zombie}"
    run.until(report.exists, "tried to save as a zombie", PATIENCE_S)
    published = "fenced" not in report.read_text()
    ended = not Path(f"/proc/{zombie}").exists()
    _end([zombie])
    return f"{int(published)} of 1", f"{int(ended)} of 1"


def storage(lab: Lab, how: str, short: bool) -> Cells:
    """C13: starts, disk full; starts, read-only; checkpoints intact; says what is wrong."""
    starts, intact, told = [], 0, 0
    for fault, words in SAYS.items():
        run = lab.run(
            f"peer-{how.split()[0]}", {"steps": 400, "step_s": STEP_S, "payload_bytes": 200_000}
        )
        with small_disk(run.stage / "checkpoints") as folder:
            peer = PeerRun.of(run).submit(how)
            peer.until_step(25)
            if fault == "full":
                fill(folder)
            else:
                subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            starts.append(_starts(peer))
            intact += any(folder.glob("*/checkpoint-*/complete.json"))
            told += words in peer.said()
            lab.cancel_all()
            peer.until_over(30)
    return *starts, f"{intact} of {len(SAYS)}", f"{told} of {len(SAYS)}"


def leak(lab: Lab, how: str, short: bool) -> Cells:
    """C14: told before; killed; restarts of their own accord; steps lost or repeated."""
    steps = memory.STEPS_SHORT if short else memory.STEPS
    run = peer_run(lab, how, {"steps": steps, "save_every": 100, **memory.LEAK}, until_step=1)
    with memory.MemoryLimit(run.stage).kept() as limit:
        run.until(lambda: limit.kills or is_over(run.job_id), "filled its memory", 180)
        seconds = run.seconds_to_recover(time.time(), _patience(short))
    return "never", str(limit.kills), "0", "lost" if seconds == LOST else "0"


def soak(lab: Lab, how: str, short: bool) -> Cells:
    """C15: ETTR, by our accountant, over the length of the soak."""
    plan = endurance.schedule(short)
    run = peer_run(
        lab, how, {"steps": plan.steps, "step_s": STEP_S, "save_every": 100}, until_step=1
    )
    began = run.ledger()[0]["time"]
    for at, fault in enumerate(plan.faults, 1):
        while time.time() < began + at * plan.every_s:
            time.sleep(0.2)
        when, victim = time.time(), run.ranks()[0]
        if fault == "node":
            lab.kill_node(run, variable(victim, "SLURMD_NODENAME"), silently=True)
        else:
            os.kill(victim, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        if run.seconds_to_recover(when, plan.every_s) == LOST:
            break
    _end(run.ranks())
    steps = MetricsFollower(run.attempt_dir / METRICS_NAME).new()
    spans = tuple(StepSpan(_us(s.time - s.seconds), _us(s.time), s.step) for s in steps)
    end = max(_us(run.started + plan.minutes * 60), spans[-1].end)
    trace = Trace(
        "sft", 1, submitted=_us(run.started), started=spans[0].start, ended=end, nodes=2,
        nodes_allocated=2, steps=spans,
    )  # fmt: skip
    ettr = account("peer", [trace]).ettr
    return (f"{ettr:.2f}",)


def nasty_strings(lab: Lab, how: str, short: bool) -> Cells:
    """C19: strings intact, as arguments and as variables."""
    noise, intact, count = random.Random(19), 0, 10
    texts = [nasty(noise) for _ in range(count)]
    names = {f"NASTY_{at}": text for at, text in enumerate(texts)}
    folder = lab.folder / f"strings-{how.split()[0]}"
    folder.mkdir()
    if how == "submitit":
        seen = _through_submitit(folder, texts, names)
    else:
        seen = _through_sbatch(folder, texts, names)
    for at, (name, text) in enumerate(names.items()):
        intact += seen.arguments[at : at + 1] == [text] and seen.environment.get(name) == text
    return (f"{intact} of {count}",)


def two_jobs_on_one_node(lab: Lab, how: str, short: bool) -> Cells:
    """pair: both train to their end at the same time."""
    settings = {"steps": 40, "step_s": 0.05}
    runs = [peer_run(lab, how, settings) for _ in range(2)]
    over = [run.until_over(60) and (run.stage / "result.json").exists() for run in runs]
    return (f"{int(all(over))} of 1",)


_SHOW = """
import json, os, sys
json.dump([sys.argv[2:], dict(os.environ)], open(sys.argv[1], "w"))
"""

_SHOW_SCRIPT = """#!/bin/bash
#SBATCH --job-name=strings --nodes=1 --requeue --output={folder}/job.log
srun {command} "$@"
"""

_SHOW_SUBMIT = """
import submitit

class Show:
    def __call__(self, command, texts, names):
        import os, subprocess
        subprocess.run([*command, *texts], env={{**os.environ, **names}}, check=True)

executor = submitit.SlurmExecutor(folder={folder!r})
executor.update_parameters(nodes=1, time=2, job_name="strings")
print(executor.submit(Show(), {command!r}, {texts!r}, {names!r}).job_id)
"""


def _through_sbatch(folder: Path, texts: list[str], names: dict[str, str]) -> Seen:
    script, out = folder / "strings.sbatch", folder / "seen.json"
    command = shlex.join([sys.executable, "-c", _SHOW, str(out)])
    script.write_text(_SHOW_SCRIPT.format(folder=folder, command=command))
    return _seen(call(["sbatch", str(script), *texts], {**os.environ, **names}), out)


def _through_submitit(folder: Path, texts: list[str], names: dict[str, str]) -> Seen:
    out = folder / "seen.json"
    command = [sys.executable, "-c", _SHOW, str(out)]
    source = _SHOW_SUBMIT.format(folder=str(folder), command=command, texts=texts, names=names)
    return _seen(call([sys.executable, "-c", source]), out)


def _seen(printed: str, out: Path) -> Seen:
    """What the job saw: nothing, where it failed."""
    job, deadline = job_number(printed), time.monotonic() + 60
    while not is_over(job):
        if time.monotonic() > deadline:
            raise LabError(f"job {job} is not over after a minute")
        time.sleep(0.3)
    if not out.exists():
        return Seen([], {})
    return Seen(*json.loads(out.read_text()))


def _end(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _training(lab: Lab, how: str) -> PeerRun:
    return peer_run(lab, how, {"steps": FOR_EVER, "step_s": STEP_S}, until_step=25)


def _starts(run: PeerRun) -> str:
    """How often it was started until it was over, or in 20 s."""
    run.until_over(20)
    return str(run.starts())


def _patience(short: bool) -> float:
    return PATIENCE_SHORT_S if short else PATIENCE_S


def _number(seconds: float) -> str:
    return f"{seconds:.3g}"


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


PLAYED: dict[str, Callable[[Lab, str, bool], Cells]] = {
    "C1": rank_kill,
    "C2": node_death_with_spare,
    "C3": node_death,
    "C4": random_kills,
    "C7": hang,
    "C8": time_limit,
    "C9": bug,
    "C10": straggler,
    "C12": zombie_writer,
    "C13": storage,
    "C14": leak,
    "C15": soak,
    "C19": nasty_strings,
    "pair": two_jobs_on_one_node,
}
