"""What watches training dies, or the time limit comes."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.result import STEP_S, Result
from training.attempt_history import OUTCOME_NAME


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
        Result("steps lost or repeated over it, worst", max(map(abs, last_steps)), "", "= 0"),
        Result(
            f"left before the limit with the last step saved, of {trials}", saved, "", f"= {trials}"
        ),
    ]


def queued_successor(lab: Lab, short: bool) -> list[Result]:
    """A job dies behind which the next one waits: with a supervisor, and without."""
    trials, patience_s = (1 if short else 3), 5.0
    seconds: dict[bool, list[float]] = {True: [], False: []}
    strangers = 0
    for trial in range(trials):
        for supervised in seconds:
            run = lab.run(
                "queued", {"steps": 200, "step_s": STEP_S}, nodes=1, restarts=0, successor=True,
                successor_wait_s=patience_s,
            ).supervise()  # fmt: skip
            waits = run.stage / "successors" / "2" / "handle.json"
            run.until(waits.exists, "had a job waiting")
            run.until_step(25 + trial)
            if not supervised:
                run.kill_supervisor()
            when = time.time()
            os.kill(run.coordinator_pid(), signal.SIGKILL)
            seconds[supervised].append(run.recovered(when))
            run.until((run.stage / "result.json").exists, "trained to the end")
            if supervised:
                run.finish()
            took_over = run.stage / "attempts" / "2" / "handle.json"
            strangers += json.loads(took_over.read_text()) != json.loads(waits.read_text())
            strangers += run.attempts() != 2
            lab.cancel_all()
    return [
        Result("training again in the job that waited, worst", max(seconds[True]), "s", "<= 20"),
        Result(
            f"the same without a supervisor (a wait of {patience_s:.0f} s in it), worst",
            max(seconds[False]), "s", "<= 30",
        ),
        Result("other jobs than the one that waited", strangers, "", "= 0"),
    ]  # fmt: skip


def supervisor_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: the supervisor is killed at random moments and started again."""
    return _controllers(lab, 2 if short else 10, "supervisor")


def slurmctld_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: slurmctld is killed and started again while runs are submitted and watched."""
    return _controllers(lab, 2 if short else 10, "slurmctld")


def _controllers(lab: Lab, trials: int, victim: str) -> list[Result]:
    duplicates = lost = struck = 0
    chance = random.Random(7)
    for _ in range(trials):
        run = lab.run(victim, {"steps": 120, "step_s": 0.05}).supervise()
        time.sleep(chance.uniform(0.0, 5.0))
        struck += run.is_watched and not (run.stage / "result.json").exists()
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
        duplicates += lab.duplicates_under(run.stage)
    return [
        Result(f"{victim} killed during a run, of {trials}", struck, "", f"= {trials}"),
        Result("duplicate submissions", duplicates, "", "= 0"),
        Result("lost runs", lost, "", "= 0"),
    ]
