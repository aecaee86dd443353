"""What upstream's own flow would have said of an answer that was simulated here, mistakes included.

    why = refusal(benchmark, Log(compiler, simulation, code))     # "" when upstream calls it right
    rate = printed_rate(benchmark, passed=1, samples=8, k=1, problems=156)

For comparison with published scores. Rules and arithmetic are upstream's:

- VerilogEval v2 (`sv-iv-analyze`): right when no line of the log ends the reading with a letter and
  one says `Mismatches: 0`. Printed is the mean of the problems' rates, each cut to whole per cents.
- VerilogEval v1 (`execution.py`): right when nothing is on stderr, warnings too, and the first line
  of mismatches says 0. Printed is pass@k.
- RTLLM (`auto_run.py`): right when `Pass` or `pass` stands anywhere in what the bench printed.
  Printed is pass@k over one problem more than there are.

The log is one of upstream's flags, but without the reference beside the answer and without what
`verilog_cuts` leaves out of it. Not covered: an answer that the gate refuses is never run, so what
upstream would have said of it (a forged line passes there) is not known, and it counts as wrong;
so does one that takes more than the limits here. RTLLM's compiler is VCS, which is not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from evaluation.benchmarks.verilog.contents import known_ids
from evaluation.statistics import pass_at_k

# v2: the first of these on a line ends the reading, with that letter instead of a pass.
_V2_LETTERS: Final = (
    ("syntax error", "S"),
    ("error: This assignment requires an explicit cast", "e"),
    ("error: Sized numeric constant must have a size greater than zero", "0"),
    ("warning: always_comb process has no sensitivities", "n"),
    ("found no sensitivities so it will never trigger", "n"),
    ("is declared here as wire", "w"),
    ("Unknown module type", "m"),
    ("Unable to bind wire/reg/memory `clk'", "c"),
    ("TIMEOUT", "T"),
)
_V2_RESETS: Final = ("posedge reset", "negedge reset", "posedge r)")
_V2_LINE = re.compile(r"^Mismatches: (\d+) in \d+ samples$")
_V1_LINE = re.compile(r"Mismatches: ([0-9]*) in ([0-9]*) samples")
RTLLM_WORDS: Final = ("Pass", "pass")
RIGHT: Final = "."


class Log(NamedTuple):
    """What upstream reads: the compiler's messages, the simulation's output, the answer's code.

    `asserts`: the code asserts something over clock cycles, which Icarus calls a syntax error; here
    it is cut out before.
    """

    compiler: str
    simulation: str = ""
    code: str = ""
    asserts: bool = False


class Reading(NamedTuple):
    """`letter` is `RIGHT` or upstream's, `words` what made it so."""

    letter: str
    words: str = ""


def has_rules(benchmark: str) -> bool:
    """Whether it has an upstream with rules; a set of your own has none, whatever its layout."""
    return benchmark in known_ids()


def has_icarus(benchmark: str) -> bool:
    """Whether it has an upstream that compiles with Icarus Verilog, as is done here."""
    return has_rules(benchmark) and benchmark.startswith("verilog_eval_")


def refusal(benchmark: str, log: Log) -> str:
    """Why upstream calls an answer wrong, "" when it does not; always "" without rules."""
    if not has_rules(benchmark):
        return ""
    rule = next(rule for name, rule in _RULES.items() if benchmark.startswith(name))
    return rule(log)


def read_v2(log: Log) -> Reading:
    """VerilogEval v2's letter of an answer."""
    unbound = error = right = False
    for line in f"{log.compiler}\n{log.simulation}".split("\n"):
        for words, letter in _V2_LETTERS:
            if words in line:
                return Reading(letter, words)
        unbound = unbound or "Unable to bind wire/reg" in line
        error = error or "error" in line
        counted = _V2_LINE.match(line)
        right = right or (counted is not None and int(counted[1]) == 0)
    if unbound:
        return Reading("p", "Unable to bind wire/reg")
    if error:
        return Reading("C", "the word 'error' in the log")
    if right:
        return Reading(RIGHT)
    reset = any(words in log.code for words in _V2_RESETS)
    return Reading("r" if reset else "R", "mismatch")


def _v2(log: Log) -> str:
    if log.asserts:
        return "concurrent assertion: syntax error (S)"
    read = read_v2(log)
    return "" if read.letter == RIGHT else f"{read.words} ({read.letter})"


def _v1(log: Log) -> str:
    if log.asserts:
        return "failed: syntax error. (concurrent assertion)"
    if "syntax error" in log.compiler:
        return "failed: syntax error."
    if log.compiler:
        return "failed: compile error. (any text on stderr)"
    counted = _V1_LINE.search(log.simulation)
    if counted is None:
        return "failed: info string not matched."
    wrong, samples = counted.groups()
    return "" if int(wrong) == 0 else f"failed: {wrong} out of {samples} samples."


def _rtllm(log: Log) -> str:
    said = any(word in log.simulation for word in RTLLM_WORDS)
    return "" if said else "no 'Pass' or 'pass' in the output"


_RULES: Final[dict[str, Callable[[Log], str]]] = {
    "verilog_eval_v1": _v1,
    "verilog_eval_v2": _v2,
    "rtllm": _rtllm,
}


def printed_rate(benchmark: str, *, passed: int, samples: int, k: int, problems: int) -> float:
    """What one of `problems` adds to the mean that upstream prints; no more than pass@k.

    VerilogEval v2 has no pass@k but for k = 1.
    """
    if benchmark.startswith("verilog_eval_v2") and k == 1:
        return int((passed / samples) * 100) / 100  # upstream's expression, in floats: 29 % is 28
    rate = pass_at_k(samples, passed, k)
    if benchmark.startswith("rtllm"):
        return rate * problems / (problems + 1)
    return rate
