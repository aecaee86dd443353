"""A rank is killed, hangs, is slow, or fails at the same row wherever it runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.lab import Lab, LabError, Run
from benchmarks.chaos.result import STEP_S, Result, all_in_one_job
from benchmarks.chaos.supervisor import GIVEN_UP


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
    all_in_one_job(run, trials + 1)
    if lab.bad_nodes(run):
        raise LabError("a node was blamed for a killed rank")
    return [
        Result("training again after kill -9 of a rank, worst", max(seconds), "s", "<= 15"),
        Result("steps trained twice, worst (a save every 10)", max(repeated), "", "<= 10"),
    ]


def hangs(lab: Lab, short: bool) -> list[Result]:
    """C7: a stopped rank, a rank that waits for a file system for ever; a clean run."""
    trials, limit_s = (2, 3.0) if short else (10, 5.0)
    run = lab.run(
        "hang", {"steps": 40 + 30 * trials, "step_s": STEP_S}, processes=2, step_limit_s=limit_s
    ).supervise()
    delays, named, stacks = [], 0, 0
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
        stacks += _tells_where(event.facts["stacks"].get(str(culprit), ()), stopped=trial % 2 == 1)
        run.recovered(when)
    run.finish()
    clean_s = 30 if short else 1800
    clean = lab.run(
        "no-hang", {"steps": int(clean_s / STEP_S), "step_s": STEP_S, "save_every": 100},
        processes=2, step_limit_s=limit_s,
    ).supervise()  # fmt: skip
    clean.finish(clean_s * 3 + 300)
    return [
        Result(f"hanging rank named rightly, of {trials}", named, "", f"= {trials}"),
        Result(f"stack of that rank in the report, of {trials}", stacks, "", f"= {trials}"),
        Result("noticed after the section's limit, worst", max(delays), "s", "<= 10"),
        Result(f"false alarms in a clean run of {clean_s} s", len(clean.events("hang")), "", "= 0"),
    ]


def _tells_where(stack: Sequence[str], *, stopped: bool) -> bool:
    """Whether a stack leads to the place: the wait itself, or wherever SIGSTOP met a step."""
    return any(("train (" if stopped else "load_batch_for_ever (") in frame for frame in stack)


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
    trials = 1 if short else 5
    after, right, wrong = [], 0, 0
    for trial in range(trials):
        culprit, since = trial % 4, 20
        run = lab.run(
            "straggler", {"steps": 80, "slow_rank": culprit, "slow_from": since, "step_s": STEP_S},
            processes=2,
        ).supervise()  # fmt: skip
        run.finish()
        found = run.events("straggler")
        hits = [event for event in found if event.facts["rank"] == culprit]
        right += bool(hits)
        wrong += len(found) - len(hits)
        after += [event.facts["step"] - since for event in hits[:1]] or [run.last_step()]
    clean_runs, steps, alarms = 5, 60 if short else 200, 0
    for _ in range(clean_runs):
        run = lab.run("even", {"steps": steps, "step_s": STEP_S}, processes=2).supervise()
        run.finish()
        alarms += len(run.events("straggler"))
    precision = right / max(1, right + wrong + alarms)
    return [
        Result("straggler (30 % slower) named after, worst", max(after), "steps", "<= 20"),
        Result(f"stragglers named, of {trials}", right, "", f"= {trials}"),
        Result(f"ranks named in {clean_runs} clean runs of {steps} steps", alarms, "", "= 0"),
        Result("precision over all of these runs", precision, "", "= 1"),
    ]


def run_step_before(run: Run, when: float) -> int:
    return int([line for line in run.ledger() if line["time"] <= when][-1]["step"])


def _signal_rank(run: Run, node: str, rank: int, number: signal.Signals) -> None:
    for pid in run.processes(node, ranks=True):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in environment:
            os.kill(pid, number)
            return
    raise LabError(f"rank {rank} is not on {node}")
