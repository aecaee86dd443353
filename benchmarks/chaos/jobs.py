"""Hostile strings, jobs side by side, storage that fails."""

from __future__ import annotations

import json
import random
import string
import subprocess

from benchmarks.chaos.disks import fill, small_disk
from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.result import STEP_S, Result, wait_for
from benchmarks.chaos.supervisor import GIVEN_UP, REPOSITORY
from training import checkpoints
from training.cluster.job import Job, JobState

SAYS = {"full": "No space left on device", "read-only": "Read-only file system"}


def storage(lab: Lab, short: bool) -> list[Result]:
    """C13: the checkpoint folder's file system fills up, or turns read-only."""
    results, intact, told = [], 0, 0
    for fault in SAYS:
        run = lab.run("disk", {"steps": 400, "step_s": STEP_S, "payload_bytes": 200_000})
        with small_disk(run.stage / "checkpoints") as folder:
            run.supervise().until_step(25)
            if fault == "full":
                fill(folder)
            else:
                subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            code = run.wait()
            newest = checkpoints.newest_complete(folder)
            intact += newest is not None and newest.step >= 20
            told += SAYS[fault] in run.log()
            if code != GIVEN_UP:
                raise LabError(f"{fault}: exit {code}, newest {newest}: {run.log()[-800:]}")
            results.append(Result(f"starts until it was given up, disk {fault}",
                                  len(run.events("started")), "", "<= 3"))  # fmt: skip
    return [
        *results,
        Result(f"old checkpoints intact, of {len(SAYS)}", intact, "", f"= {len(SAYS)}"),
        Result(f"runs that say what is wrong, of {len(SAYS)}", told, "", f"= {len(SAYS)}"),
    ]


def nasty_strings(lab: Lab, short: bool) -> list[Result]:
    """C19: arguments and variables with every sort of character, through a real sbatch."""
    jobs, each = (2, 10) if short else (20, 10)
    noise = random.Random(19)
    intact = 0
    for number in range(jobs):
        folder = lab.folder / "strings" / str(number + 1)
        folder.mkdir(parents=True)
        texts = [nasty(noise) for _ in range(each)]
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


def nasty(noise: random.Random) -> str:
    pool = string.printable + "\x01\x1b\x7f" + "é€日本\u202e\U0001f600" + "'\"\\$`!%#~\n\r\t"
    special = ["", "-n", "--", "#SBATCH --uid=0", "$(id)", "a b,c=d", "\r\n#SBATCH x", "%j"]
    text = "".join(noise.choice(pool) for _ in range(noise.randint(0, 60)))
    return noise.choice(special) + text
