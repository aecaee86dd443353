"""A node dies, with and without a spare, and with a rank that lives on."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from benchmarks.chaos.lab import NODES, Lab, LabError, Run
from benchmarks.chaos.result import STEP_S, Result, all_in_one_job, wait_for
from benchmarks.chaos.supervisor import REPOSITORY
from training.cluster.job import Job, JobState


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
        all_in_one_job(run, 2)
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


def no_node(lab: Lab, short: bool) -> list[Result]:
    """C3 once more, but every other node is taken: the run goes on with fewer."""
    run = lab.run(
        "shrink", {"steps": 150, "step_s": STEP_S}, min_nodes=1, shrink_after_s=5.0
    ).supervise()
    run.until_step(25)
    others = NODES - len(run.nodes())
    taker = ["sbatch", f"--nodes={others}", "--exclusive", "--wrap=sleep 600", "--output=/dev/null"]
    subprocess.run(taker, check=True, capture_output=True)
    when = lab.kill_node(run, run.nodes()[1], silently=True)
    seconds = run.recovered(when)
    run.finish()
    if len(run.nodes()) != 1:
        raise LabError(f"it ended on {run.nodes()}:\n{run.story()}")
    return [Result("training again on one node, none being free for two", seconds, "s", "<= 45")]


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
