"""Right answers of the public Verilog benchmarks: which pass, and how long grading them takes.

    python -m benchmarks.evaluation.verilog_golden [--short]

The peer is upstream's own flow of VerilogEval v2 on the same answers, in the same run, with as
many processes: compile with its flags, simulate with its dumps. The golden run simulates each
reference once, which then is known as an answer; "other programs" are the same answers with a wire
more, simulated one by one against the kept recordings. CPU seconds are taken at sandbox
level `rlimit`, since bubblewrap does not account for its child; wall seconds at the usual level.
The long form adds 3,120 answers, 20 a problem, of which a third are distinct; there the peer is
upstream's CPU time for one answer a problem, times 20.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.evaluation.verilog_problems import (
    PLACES,
    V2,
    WORKERS,
    grade,
    problems_of,
    rewritten,
    right_answer,
)
from benchmarks.measure import Report, cpu_seconds, parser
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers import sandbox
from evaluation.verifiers.sandbox import Limits

# Passing on Icarus 11 and 12, measured with upstream's files apart from this program.
EXPECTED = {
    "11": {V2: 154, "verilog_eval_v1_human": 154, "verilog_eval_v1_machine": 143, "rtllm_v1.1": 26},
    "12": {V2: 156, "verilog_eval_v1_human": 156, "verilog_eval_v1_machine": 143, "rtllm_v1.1": 25},
}
COPIES, DISTINCT = 20, 7
STARTS = 100


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    report = Report("evaluation", "verilog_golden", short=arguments.short)
    with tempfile.TemporaryDirectory() as scratch:
        goldens(report, Path(scratch))
        one_each = speed(report, Path(scratch))
        if not arguments.short:
            many(report, Path(scratch), COPIES * one_each)
        sandboxes(report, Path(scratch))
    return report.finish()


def goldens(report: Report, scratch: Path) -> None:
    """How many references pass as answers; each that does not is noted with its cause."""
    for name in PLACES:
        answers = [(p.task_id, 0, right_answer(p)) for p in problems_of(name).values()]
        ran = grade(name, answers, scratch / name)
        version = re.search(r"\d+", ran.summary["simulator"])
        expected = EXPECTED.get(version.group() if version else "", {}).get(name)
        passed = sum(verdict == "pass" for verdict in ran.verdicts.values())
        target = f"= {expected}" if expected is not None else ""
        report.add(f"{name}: right answers that pass", passed, f"of {len(answers)}", target=target)
        official = ran.summary["official"]
        report.add(f"{name}: by upstream's rules", official["passed"], f"of {len(answers)}")
        for task_id, why in ran.summary["unusable"].items():
            report.notes.append(f"{name} {task_id}: {why.splitlines()[0]}")
    report.notes.append(ran.summary["simulator"])


def speed(report: Report, scratch: Path) -> float:
    """The golden run over the 156 problems beside upstream's flow, then other programs.

    Returns upstream's CPU seconds.
    """
    problems = list(problems_of(V2).values())
    answers = [(p.task_id, 0, right_answer(p)) for p in problems]
    started = time.monotonic()
    grade(V2, answers, scratch / "cold")
    ours = time.monotonic() - started
    started = time.monotonic()
    grade(V2, [(t, s, rewritten(a, "again")) for t, s, a in answers], scratch / "cold")
    warm = time.monotonic() - started
    started = time.monotonic()
    with cpu_seconds() as peer_cpu, ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(upstream, problems))
    peer = time.monotonic() - started
    with cpu_seconds() as cpu:
        grade(V2, answers, scratch / "cpu", sandbox="rlimit")
    with cpu_seconds() as warm_cpu:
        again = [(t, s, rewritten(a, "again")) for t, s, a in answers]
        grade(V2, again, scratch / "cpu", sandbox="rlimit")
    label = "upstream's flow"
    rows = (("golden run", ours, cpu[0], 8), ("other programs", warm, warm_cpu[0], 8))
    for name, wall, seconds, most in rows:
        report.add(f"{name}, wall", wall, "s", target=f"<= {most}", peer=label, peer_value=peer)
        report.add(f"{name}, CPU", seconds, "s", peer=label, peer_value=peer_cpu[0])
        report.add(f"{name}: upstream's CPU over ours", peer_cpu[0] / seconds, "x", target=">= 2")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    report.notes.append(f"load of the machine in the last 1, 5, 15 minutes: {load}")
    return peer_cpu[0]


def upstream(problem: Problem) -> None:
    """VerilogEval's commands on one right answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "answer.sv").write_text(right_answer(problem))
        (folder / "test.sv").write_text(problem.bench)
        (folder / "ref.sv").write_text(problem.reference)
        flags = "-Wall -Winfloop -Wno-timescale -g2012 -s tb -o run answer.sv test.sv ref.sv"
        subprocess.run(["iverilog", *flags.split()], cwd=folder, capture_output=True, check=False)
        subprocess.run(["vvp", "-n", "run"], cwd=folder, capture_output=True, check=False)


def many(report: Report, scratch: Path, peer_cpu: float) -> None:
    """20 answers a problem, cold; equal verdicts when shuffled and with other parallelism."""
    started = time.monotonic()
    ran = grade(V2, copies(), scratch / "many")
    report.add("3,120 answers, wall", time.monotonic() - started, "s", target="<= 300")
    with cpu_seconds() as cpu:
        other = grade(
            V2, reversed(list(copies())), scratch / "other", "--workers", "3", sandbox="rlimit"
        )
    report.add("3,120 answers, CPU", cpu[0], "s", peer="upstream's flow", peer_value=peer_cpu)
    report.add("upstream's CPU over ours, 3,120 answers", peer_cpu / cpu[0], "x", target=">= 2")
    differing = sum(ran.verdicts[key] != verdict for key, verdict in other.verdicts.items())
    report.add("verdicts that change with order, parallelism and sandbox level", differing,
               target="= 0")  # fmt: skip


def sandboxes(report: Report, scratch: Path) -> None:
    """What each level adds to the start of a program: the least of many, which load hides least."""
    command, least = ["true"], {}
    for level in sandbox.LEVELS:
        wrapped = sandbox.wrap(level, scratch, command, Limits())
        times = []
        for _ in range(STARTS):
            started = time.perf_counter()
            subprocess.run(wrapped, cwd=scratch, check=True)
            times.append(time.perf_counter() - started)
        least[level] = 1000 * min(times)
    for level in ("bwrap", "rlimit"):
        report.add(f"a start in sandbox {level}, wall", least[level], "ms", peer="no sandbox",
                   peer_value=least["none"])  # fmt: skip


def copies() -> Iterator[tuple[str, int, str]]:
    for problem in problems_of(V2).values():
        for sample in range(COPIES):
            yield problem.task_id, sample, rewritten(right_answer(problem), f"v{sample % DISTINCT}")


if __name__ == "__main__":
    sys.exit(main())
