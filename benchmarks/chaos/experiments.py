"""The experiments: each injects one kind of fault and returns what came of it.

An experiment raises `LabError` when the outcome is wrong (a sample lost, a bad node used again);
its figures are seconds and counts. `short` asks for few repetitions.
"""

from __future__ import annotations

import json
import os
import random
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.chaos.lab import Lab, LabError, Run
from benchmarks.chaos.supervisor import GIVEN_UP, REPOSITORY
from training import checkpoints
from training.attempt_history import OUTCOME_NAME
from training.cluster.job import TERMINAL, Job, JobState
from training.cluster.slurm import SlurmLauncher

STEP_S = 0.1


class Result(NamedTuple):
    """A figure. `target` is a comparison as in `benchmarks.measure`."""

    name: str
    value: float
    unit: str
    target: str


class Experiment(NamedTuple):
    key: str
    about: str
    play: Callable[[Lab, bool], list[Result]]


def rank_kill(lab: Lab, short: bool) -> list[Result]:
    """C1: SIGKILL to a rank, again and again in one run."""
    trials = 2 if short else 10
    run = lab.run("rank-kill", {"steps": 60 + 40 * trials, "step_s": STEP_S}).supervise()
    seconds, repeated = [], []
    for trial in range(1, trials + 1):
        line = run.until_step(40 * trial + trial % 9 + 1)
        when = time.time()
        os.kill(run.rank_pid(run.nodes()[1]), signal.SIGKILL)
        seconds.append(run.recovered(when))
        resumed = next(x for x in run.ledger() if x["time"] > when and x["pid"] != line["pid"])
        repeated.append(run_step_before(run, when) - resumed["step"] + 1)
    run.finish()
    _all_in_one_job(run, trials + 1)
    if lab.bad_nodes(run):
        raise LabError("a node was blamed for a killed rank")
    return [
        Result("training again after kill -9 of a rank, worst", max(seconds), "s", "<= 15"),
        Result("steps trained twice, worst (a save every 10)", max(repeated), "", "<= 10"),
    ]


def node_death_with_spare(lab: Lab, short: bool) -> list[Result]:
    """C2: the power of a node goes; a spare of the allocation takes over."""
    seconds = []
    for trial in range(1 if short else 5):
        run = lab.run("spare", {"steps": 120, "step_s": STEP_S}, spares=1).supervise()
        run.until_step(25 + trial)
        dead = run.nodes()[1]
        when = lab.kill_node(run, dead, silently=True)
        seconds.append(run.recovered(when))
        run.finish()
        _all_in_one_job(run, 2)
        if dead in run.nodes():
            raise LabError(f"{dead} was used again")
        lab.revive()
    return [
        Result("training again on a spare after a node's death, worst", max(seconds), "s", "<= 20")
    ]


def node_death_without_spare(lab: Lab, short: bool) -> list[Result]:
    """C3: the same without a spare: a new job without the dead node."""
    seconds, reused = [], 0
    for trial in range(1 if short else 5):
        run = lab.run("no-spare", {"steps": 120, "step_s": STEP_S}).supervise()
        run.until_step(25 + trial)
        dead = run.nodes()[1]
        when = lab.kill_node(run, dead, silently=True)
        seconds.append(run.recovered(when))
        run.finish()
        reused += sum(dead in event.nodes for event in run.events("started")[1:])
        if set(lab.bad_nodes(run)) != {dead}:
            raise LabError(f"{dead} died, blamed are {sorted(lab.bad_nodes(run))}")
        lab.revive()
    return [
        Result("training again in a new job after a node died, worst", max(seconds), "s", "<= 45"),
        Result("starts on the dead node", reused, "", "= 0"),
    ]


def hangs(lab: Lab, short: bool) -> list[Result]:
    """C7: a stopped rank, a rank that waits for a file system for ever; a clean run."""
    trials, limit_s = (2, 3.0) if short else (10, 5.0)
    run = lab.run(
        "hang", {"steps": 40 + 30 * trials, "step_s": STEP_S}, processes=2, step_limit_s=limit_s
    ).supervise()
    delays, named = [], 0
    for trial in range(1, trials + 1):
        run.until_step(30 * trial)
        culprit = trial % 4
        node = run.nodes()[culprit // 2]
        when = time.time()
        if trial % 2:
            _signal_rank(run, node, culprit, signal.SIGSTOP)
        else:
            (run.stage / "faults" / f"hang-{culprit}").touch()
        run.until(lambda: len(run.events("hang")) >= trial, "noticed the hang")  # noqa: B023
        event = run.events("hang")[trial - 1]
        delays.append(event.time - when - limit_s)
        named += event.facts["ranks"] == [culprit]
        run.recovered(when)
    run.finish()
    clean_s = 60 if short else 1800
    clean = lab.run(
        "no-hang", {"steps": int(clean_s / STEP_S), "step_s": STEP_S, "save_every": 100},
        processes=2, step_limit_s=limit_s,
    ).supervise()  # fmt: skip
    clean.finish(clean_s * 3 + 300)
    return [
        Result(f"hanging rank named rightly, of {trials}", named, "", f"= {trials}"),
        Result("noticed after the section's limit, worst", max(delays), "s", "<= 10"),
        Result(f"false alarms in a clean run of {clean_s} s", len(clean.events("hang")), "", "= 0"),
    ]


def walltime(lab: Lab, short: bool) -> list[Result]:
    """C8: the time limit comes; all ranks save and leave, the next job goes on."""
    trials = 2 if short else 10
    saved, last_steps = 0, []
    waves = [list(range(first, min(first + 3, trials))) for first in range(0, trials, 3)]
    for wave in waves:
        runs = [
            lab.run(
                "walltime",
                {"steps": 900, "step_s": STEP_S, "save_every": 10_000},
                time_limit_s=60,
                signal_lead_s=40,
            ).supervise()
            for _ in wave
        ]
        for run in runs:
            first = run.stage / "attempts" / "1" / OUTCOME_NAME
            run.until(first.exists, "reached the time limit", 240)
            outcome = json.loads(first.read_text())
            newest = outcome["newest_checkpoint"]
            trained = max(x["step"] for x in run.ledger() if x["attempt"] == 1)
            saved += outcome["cause"] == "stopped" and newest == trained > 0
            run.until(lambda: any(x["attempt"] == 2 for x in run.ledger()), "went on", 120)  # noqa: B023
            resumed = next(x["step"] for x in run.ledger() if x["attempt"] == 2)
            last_steps.append(resumed - trained - 1)
            run.kill_supervisor()
        lab.cancel_all()
    return [
        Result(
            f"left before the limit with the last step saved, of {trials}", saved, "", f"= {trials}"
        ),
        Result("steps lost or repeated over it, worst", max(map(abs, last_steps)), "", "= 0"),
    ]


def bug(lab: Lab, short: bool) -> list[Result]:
    """C9: an exception in the same step of the same rank, wherever it runs."""
    run = lab.run("bug", {"steps": 60, "bug_rank": 1, "bug_step": 7}, spares=1).supervise()
    code = run.wait()
    if code != GIVEN_UP or "no node is blamed" not in run.log():
        raise LabError(f"exit code {code}: {run.log()[-800:]}")
    return [
        Result("starts of a run with a deterministic bug", len(run.events("started")), "", "<= 3"),
        Result("nodes blamed for it", len(lab.bad_nodes(run)), "", "= 0"),
    ]


def straggler(lab: Lab, short: bool) -> list[Result]:
    """C10: one rank needs 30 % longer from some step on; clean runs beside it."""
    after, named = [], 0
    for trial in range(1 if short else 5):
        culprit, since = trial % 4, 20
        run = lab.run(
            "straggler", {"steps": 80, "slow_rank": culprit, "slow_from": since, "step_s": STEP_S},
            processes=2,
        ).supervise()  # fmt: skip
        run.finish()
        found = run.events("straggler")
        named += [event.facts["rank"] for event in found] == [culprit]
        after += [event.facts["step"] - since for event in found[:1]] or [999]
    wrong = 0
    clean_runs = 1 if short else 5
    for _ in range(clean_runs):
        run = lab.run("even", {"steps": 200, "step_s": STEP_S}, processes=2).supervise()
        run.finish()
        wrong += len(run.events("straggler"))
    return [
        Result("straggler (30 % slower) named after, worst", max(after), "steps", "<= 20"),
        Result(f"ranks named in {clean_runs} clean runs of 200 steps", wrong, "", "= 0"),
    ]


def supervisor_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: the supervisor is killed at random moments and started again."""
    return _controllers(lab, 2 if short else 10, "supervisor")


def slurmctld_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: slurmctld is killed and started again while runs are submitted and watched."""
    return _controllers(lab, 2 if short else 10, "slurmctld")


def _controllers(lab: Lab, trials: int, victim: str) -> list[Result]:
    duplicates = lost = 0
    chance = random.Random(7)
    for _ in range(trials):
        run = lab.run(victim, {"steps": 60, "step_s": 0.05}).supervise()
        time.sleep(chance.uniform(0.0, 5.0))
        if victim == "supervisor":
            run.kill_supervisor()
            run.supervise()
        else:
            os.kill(lab.daemon("slurmctld"), signal.SIGKILL)
            time.sleep(1)
            lab.cluster("start")
        try:
            run.finish(180)
        except LabError as error:
            print(error, file=sys.stderr)
            lost += 1
        duplicates += _jobs_named(run) - run.attempts()
    return [
        Result(f"duplicate submissions, {victim} killed {trials} times", duplicates, "", "= 0"),
        Result(f"lost runs, {victim} killed {trials} times", lost, "", "= 0"),
    ]


def zombie_writer(lab: Lab, short: bool) -> list[Result]:
    """C12: the first rank lives on after its agent has died, and goes on saving."""
    trials = 2 if short else 10
    published = reaped = 0
    for _ in range(trials):
        run = lab.run(
            "zombie", {"steps": 100, "step_s": STEP_S, "survives": True}, spares=1
        ).supervise()
        run.until_step(25)
        node = run.nodes()[0]
        zombie = run.rank_pid(node)
        for agent in run.processes(node, ranks=False):
            os.kill(agent, signal.SIGKILL)
        run.until(lambda: (run.stage / f"zombie-{zombie}").exists(), "tried to save")  # noqa: B023
        report = (run.stage / f"zombie-{zombie}").read_text()
        published += "fenced" not in report
        run.finish()
        reaped += _ends(run, node, zombie)
        lab.revive()
    return [
        Result(f"zombie writers that could publish, of {trials}", published, "", "= 0"),
        Result(f"zombies ended by the node's next agent, of {trials}", reaped, "", f"= {trials}"),
    ]


def _ends(run: Run, node: str, zombie: int) -> bool:
    """Another attempt starts on the node: is the zombie gone before its ranks start?"""
    if not Path(f"/proc/{zombie}").exists():
        return False
    folder = run.stage / "attempts" / str(run.attempts() + 1)
    others = tuple(f"node{n}" for n in range(1, 7) if f"node{n}" != node)
    source = f"import os; os._exit(os.path.exists('/proc/{zombie}/fd/0'))"
    job = Job(
        key=f"{run.config.key}-again", command=("-c", source), attempt_dir=folder,
        exclude_nodes=others, environment={"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    folder.mkdir()
    return wait_for(job) is JobState.SUCCEEDED


def storage(lab: Lab, short: bool) -> list[Result]:
    """C13: the checkpoint folder's file system fills up, or turns read-only."""
    results = []
    for fault in ("full", "read-only"):
        run = lab.run("disk", {"steps": 400, "step_s": STEP_S, "payload_bytes": 200_000})
        folder = run.stage / "checkpoints"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)
        try:
            run.supervise().until_step(25)
            if fault == "full":
                (folder / "filler").write_bytes(b"x" * _free_bytes(folder))
            else:
                subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            code = run.wait()
            newest = checkpoints.newest_complete(folder)
            intact = newest is not None and newest.step >= 20
            if code != GIVEN_UP or not intact:
                raise LabError(f"{fault}: exit {code}, newest {newest}: {run.log()[-800:]}")
            results.append(Result(f"starts until it was given up, disk {fault}",
                                  len(run.events("started")), "", "<= 3"))  # fmt: skip
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    return [*results, Result("old checkpoints intact, of 2", 2, "", "= 2")]


def nasty_strings(lab: Lab, short: bool) -> list[Result]:
    """C19: arguments and variables with every sort of character, through a real sbatch."""
    jobs, each = (2, 10) if short else (20, 10)
    noise = random.Random(19)
    intact = 0
    for number in range(jobs):
        folder = lab.folder / "strings" / str(number + 1)
        folder.mkdir(parents=True)
        texts = [_nasty(noise) for _ in range(each)]
        names = {f"NASTY_{at}": text for at, text in enumerate(texts)}
        source = "import json,os,sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
        job = Job(
            key=f"strings-{number}", command=("-c", source, *texts), attempt_dir=folder,
            environment={"PYTHONPATH": str(REPOSITORY), **names},
        )  # fmt: skip
        if wait_for(job) is not JobState.SUCCEEDED:
            continue
        arguments, seen = json.loads((folder / "logs" / "rank-0000.log").read_text())
        intact += sum(
            text == argument == seen[name]
            for text, argument, name in zip(texts, arguments, names, strict=True)
        )
    return [
        Result(f"strings intact through sbatch, of {jobs * each}", intact, "", f"= {jobs * each}")
    ]


def two_jobs_on_one_node(lab: Lab, short: bool) -> list[Result]:
    """Two jobs at once on the same nodes: ports must not collide."""
    trials = 1 if short else 5
    fine = 0
    for _ in range(trials):
        runs = [lab.run("pair", {"steps": 40, "step_s": 0.05}).supervise() for _ in range(2)]
        for run in runs:
            run.finish()
        shared = set(runs[0].nodes()) & set(runs[1].nodes())
        together = runs[0].ledger()[0]["time"] < runs[1].ledger()[-1]["time"]
        fine += bool(shared) and together and all(run.attempts() == 1 for run in runs)
    return [Result(f"pairs of jobs side by side on a node, of {trials}", fine, "", f"= {trials}")]


def soak(lab: Lab, short: bool) -> list[Result]:
    """C15: a long run with a fault of another kind every five minutes."""
    minutes, every_s = (2, 60) if short else (20, 300)
    steps = int(minutes * 60 / STEP_S * 0.93)
    run = lab.run(
        "soak", {"steps": steps, "step_s": STEP_S, "save_every": 100}, spares=1, processes=1,
        step_limit_s=5.0,
    ).supervise()  # fmt: skip
    run.until_step(1)
    began = run.ledger()[0]["time"]
    recoveries = []
    for at, fault in enumerate(("kill", "hang", "node", "kill")[: minutes * 60 // every_s - 1], 1):
        while time.time() < began + at * every_s:
            time.sleep(0.2)
        node = run.nodes()[1]
        when = time.time()
        if fault == "kill":
            os.kill(run.rank_pid(node), signal.SIGKILL)
        elif fault == "hang":
            os.kill(run.rank_pid(node), signal.SIGSTOP)
        else:
            lab.kill_node(run, node, silently=True)
        recoveries.append(run.recovered(when))
    run.finish(minutes * 60 * 3)
    lab.revive()
    return _goodput(run, recoveries)


def _goodput(run: Run, recoveries: list[float]) -> list[Result]:
    """ETTR = productive time / wall time from the first step to the last."""
    ledger = run.ledger()
    wall_s = ledger[-1]["time"] - run.events("started")[0].time
    usual = _usual_step(ledger)
    ettr = run.config.settings.steps * usual / wall_s
    lost_s = wall_s * (1 - ettr) / max(1, len(recoveries))
    mtbf_s = 3 * 3600
    return [
        Result("ETTR of the soak, measured", ettr, "", ">= 0.9"),
        Result("lost to a fault, recomputed steps included, mean", lost_s, "s", "<= 30"),
        Result("ETTR at a failure every 3 h, so computed", 1 - lost_s / mtbf_s, "", ">= 0.95"),
    ]


def _usual_step(ledger: list[dict[str, float]]) -> float:
    gaps = [
        later["time"] - earlier["time"]
        for earlier, later in pairwise(ledger)
        if later["pid"] == earlier["pid"]
    ]
    return median(gaps)


def overhead(lab: Lab, short: bool) -> list[Result]:
    """C20: what heartbeats cost a rank, and what agents and coordinator cost a node."""
    run = lab.run("overhead", {"steps": 200 if short else 600, "step_s": STEP_S}).supervise()
    run.until_step(20)
    node = run.nodes()[0]
    agents = [*run.processes(node, ranks=False), run.coordinator_pid()]
    before, since = _cpu_seconds(agents), time.time()
    run.until_step(150 if short else 500)
    share = (_cpu_seconds(agents) - before) / (time.time() - since)
    run.finish()
    cost_us = _beat_cost_us()
    return [
        Result("a heartbeat, share of a step of 100 ms", cost_us / 1e6 / STEP_S, "", "<= 0.01"),
        Result("agent and coordinator, share of one core", share, "", "<= 0.05"),
    ]


def _beat_cost_us() -> float:
    source = (
        "import sys, time; from pathlib import Path\n"
        "from training.cluster.heartbeat import BeatReader, Heartbeat\n"
        "reader = BeatReader(Path('/dev/shm/dsm-chaos-beat')); beat = Heartbeat(reader.path)\n"
        "start = time.process_time()\n"
        "for number in range(100_000): beat.step(number, 0.1)\n"
        "print((time.process_time() - start) * 10); reader.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return float(done.stdout)


def _cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_step_before(run: Run, when: float) -> int:
    return int([line for line in run.ledger() if line["time"] <= when][-1]["step"])


def wait_for(job: Job, within_s: float = 120.0) -> JobState:
    """Submit a job without a supervisor and wait for its end."""
    launcher = SlurmLauncher()
    handle = launcher.submit(job)
    deadline = time.monotonic() + within_s
    while (status := launcher.poll(handle, job)).state not in TERMINAL:
        if time.monotonic() > deadline:
            raise LabError(f"{job.key}: still {status}")
        time.sleep(0.3)
    return status.state


def _signal_rank(run: Run, node: str, rank: int, number: signal.Signals) -> None:
    for pid in run.processes(node, ranks=True):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in environment:
            os.kill(pid, number)
            return
    raise LabError(f"rank {rank} is not on {node}")


def _all_in_one_job(run: Run, generations: int) -> None:
    if run.attempts() != 1 or len(run.events("started")) != generations:
        raise LabError(
            f"{run.attempts()} jobs and {len(run.events('started'))} generations, not 1 and "
            f"{generations}:\n{run.story()}"
        )


def _jobs_named(run: Run) -> int:
    """Jobs of the run that Slurm remembers: all, as it forgets none for five minutes."""
    listing = subprocess.run(
        ["squeue", "--me", "--states=all", "--noheader", "--format=%j"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return sum(line.startswith(f"{run.config.key}-") for line in listing.split())


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _nasty(noise: random.Random) -> str:
    pool = string.printable + "\x01\x1b\x7f" + "é€日本\u202e\U0001f600" + "'\"\\$`!%#~\n\r\t"
    special = ["", "-n", "--", "#SBATCH --uid=0", "$(id)", "a b,c=d", "\r\n#SBATCH x", "%j"]
    text = "".join(noise.choice(pool) for _ in range(noise.randint(0, 60)))
    return noise.choice(special) + text


EXPERIMENTS = (
    Experiment("C1", "a rank is killed", rank_kill),
    Experiment("C2", "a node dies, the allocation has a spare", node_death_with_spare),
    Experiment("C3", "a node dies, no spare", node_death_without_spare),
    Experiment("C7", "a rank hangs", hangs),
    Experiment("C8", "the time limit comes", walltime),
    Experiment("C9", "a deterministic bug", bug),
    Experiment("C10", "a rank is slow", straggler),
    Experiment("C11a", "the supervisor is killed", supervisor_kill),
    Experiment("C11b", "slurmctld is killed", slurmctld_kill),
    Experiment("C12", "a zombie writes", zombie_writer),
    Experiment("C13", "storage fails", storage),
    Experiment("C15", "a soak", soak),
    Experiment("C19", "nasty strings", nasty_strings),
    Experiment("C20", "overhead", overhead),
    Experiment("pair", "two jobs on one node", two_jobs_on_one_node),
)
