"""RTLLM's test bench, which prints pass or fail by itself -> one whose verdict is not to be forged.

Each print that announces the verdict becomes a marked line; all other prints and dumps go. Modules
of the bench get marked names. The candidate prints nothing (the gate sees to that), so a marked
line can only come from the bench. A pass is exactly one marked pass and no marked failure.

Upstream counts an answer whose bench prints `Pass` or `pass` anywhere, beside failures too (v2.0's
ring_counter ends with `Design Passed` whatever it found). So every print that holds the word leaves
it in a line of its own, which `official` looks for and the verdict does not.

What these benches look at is theirs: some are weak, `errata.yaml` says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from evaluation.benchmarks.verilog.official import RTLLM_WORDS
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.benchmarks.verilog.recording import (
    MARK,
    NoBench,
    Outline,
    instances_of,
    rename,
)
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_cuts import DUMPS, PRINTS, call_edits
from evaluation.verifiers.verilog_tokens import (
    Edit,
    Token,
    after_parentheses,
    apply_edits,
    tokens_of,
    units_of,
)

_PASS = re.compile(r"Design\s+Passed", re.IGNORECASE)
_FAIL = re.compile(r"fail|error", re.IGNORECASE)
RIGHT, WRONG = "right", "wrong"  # as they are printed: without the word that upstream looks for


def judging_bench(problem: Problem) -> Outline:
    """The bench of an RTLLM design with marked verdicts; `NoBench` when it prints none."""
    bench = problem.bench
    if MARK in bench:
        raise NoBench(f"uses the name {MARK}")
    tokens = tokens_of(bench)
    edits: list[Edit] = []
    kinds: set[str] = set()
    for index, token in enumerate(tokens):
        if token.text not in ("$display", "$write"):
            continue
        call = tokens[index : after_parentheses(tokens, index + 1)]
        said = bench[token.start : call[-1].end]
        kind = RIGHT if _PASS.search(said) else WRONG if _FAIL.search(said) else ""
        kinds.add(kind)
        lines = [kind] if kind else []
        lines += [word for word in RTLLM_WORDS if any(word in text for text in _texts(call))][:1]
        if lines:
            text = r"\n".join(f"{line} {MARK}" for line in lines)
            edits.append(Edit(token.start, call[-1].end, f'$display("{text}")'))
    if not {RIGHT, WRONG} <= kinds:
        raise NoBench("the bench does not print both verdicts")
    # A marked print and its removal begin at the same place: the first, shorter one must win.
    marked = {edit.start for edit in edits}
    edits += [edit for edit in call_edits(tokens, PRINTS | DUMPS) if edit.start not in marked]
    names = [unit.name for unit in units_of(tokens)]
    edits += rename(tokens, {*names, *instances_of(tokens, {problem.top})})
    return Outline(apply_edits(bench, edits), f"{names[0]}_{MARK}", ())


def _texts(call: Sequence[Token]) -> list[str]:
    return [token.text for token in call if token.kind == "string"]


def read_verdict(stdout: str, mark: str) -> Verdict:
    """What the bench said."""
    lines = stdout.splitlines()
    passed, failed = lines.count(f"{RIGHT} {mark}"), lines.count(f"{WRONG} {mark}")
    if passed == 1 and not failed:
        return Verdict(1.0, "pass", "the bench said so")
    if failed:
        return Verdict(0.0, "mismatch", "the bench found a wrong output")
    return Verdict(0.0, "runtime", f"the bench ended with {passed} verdicts")
