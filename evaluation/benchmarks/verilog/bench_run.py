"""One module in one test bench, once, in the sandbox, under a fresh mark.

    ran = run_in_bench(problem, outline, code, Allowance(2, 1 << 20, samples=400))

What comes back has the placeholder `MARK` for the mark of the run, so that two runs can be
compared as texts.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import NamedTuple

from evaluation.benchmarks.verilog.problems import Problem
from evaluation.benchmarks.verilog.recording import MARK, Outline
from evaluation.verifiers import verilog_simulation
from evaluation.verifiers.verdict import Verdict, no_verdict
from evaluation.verifiers.verilog_simulation import Driven


class Allowance(NamedTuple):
    """What a run may use, and how many samples it keeps.

    A whole one puts out `least_bytes`: less may be the fault of a full disk. `trusted` code is not
    gated.
    """

    cpu_s: int
    output_bytes: int
    samples: int
    least_bytes: int = 0
    trusted: bool = False


def run_in_bench(
    problem: Problem,
    outline: Outline,
    code: str,
    allowance: Allowance,
    *,
    fill: str = "0",
    known: Driven | None = None,
) -> Driven | Verdict:
    """Run `code` in the bench; a verdict when there was no whole run.

    The program of the run that is `known` is gated like every other, but not simulated again.
    """
    try:
        return _run(problem, outline, code, allowance, fill, known)
    except OSError as error:
        return no_verdict(error)


def _run(
    problem: Problem,
    outline: Outline,
    code: str,
    allowance: Allowance,
    fill: str,
    known: Driven | None,
) -> Driven | Verdict:
    mark = f"m{secrets.token_hex(12)}"
    with verilog_simulation.bench(allowance.cpu_s) as bench:
        put = bench.trust if allowance.trusted else bench.gate
        refused = put(code, problem.top)
        if refused is not None:
            return refused
        if known is not None and bench.program() == known.program:
            return known
        for name, content in problem.side_files:
            (bench.folder / name).write_bytes(content)
        driven = bench.drive(
            outline.with_mark(mark, samples=allowance.samples, fill=fill),
            outline.top_with_mark(mark),
            alone=problem.self_judging and not allowance.trusted,
            output_bytes=allowance.output_bytes,
            written="" if problem.self_judging else f"{mark}.txt",
        )
        disk_is_full = bench.disk_is_full()
    short = isinstance(driven, Driven) and (
        len(driven.stdout) + len(driven.written) < allowance.least_bytes
    )
    if disk_is_full and (short or isinstance(driven, Verdict)):
        return verilog_simulation.DISK_FULL
    if isinstance(driven, Verdict):
        return replace(
            driven,
            detail=driven.detail.replace(mark, MARK),
            output=driven.output.replace(mark, MARK),
        )
    if MARK in driven.stdout:
        return Verdict(0.0, "runtime", "the placeholder of the mark in the output")
    return driven._replace(stdout=driven.stdout.replace(mark, MARK))


def preprocess(text: str, cpu_s: int) -> str | Verdict:
    """A bench without macros; a verdict when the preprocessor refuses it."""
    try:
        with verilog_simulation.bench(cpu_s) as bench:
            found = bench.preprocess(text)
            full = isinstance(found, Verdict) and bench.disk_is_full()
    except OSError as error:
        return no_verdict(error)
    return verilog_simulation.DISK_FULL if full else found
