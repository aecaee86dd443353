"""What upstream's own flow would have said of an answer, mistakes included.

For comparison with published scores. VerilogEval v2 reads the log of compiler and simulation line
by line and stops at some words, so that warnings, and the guard's `TIMEOUT` of three problems,
overrule a right simulation. v1 calls anything on stderr a compile error. RTLLM looks for the word
"pass". Source: upstream's `sv-iv-analyze` (v2), `execution.py` (v1), `auto_run.py` (RTLLM). The
compiler's log here comes from upstream's flags, but without the reference beside the answer, and
without what `verilog_cuts` leaves out of it.
"""

from __future__ import annotations

# v2: the first of these on a line ends the reading, with that letter instead of a pass.
_V2_LETTERS = (
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


def has_rules(benchmark: str) -> bool:
    """Whether upstream has an analyser of its own; a set of your own has not."""
    return benchmark.startswith(("verilog_eval_", "rtllm_"))


def refusal(benchmark: str, warnings: str, *, timeout: bool, asserts: bool) -> str:
    """Why upstream calls a right simulation wrong, "" when it does not.

    `warnings` is the compiler's log; `timeout` whether the bench's own guard fired; `asserts`
    whether the answer asserts something over clock cycles, which Icarus cannot read.
    """
    if asserts and has_rules(benchmark):
        return "concurrent assertion: syntax error (S)"
    if benchmark.startswith("verilog_eval_v1"):
        return "any text on stderr is a compile error" if warnings.strip() else ""
    if benchmark.startswith("verilog_eval_v2"):
        return _letter(warnings) or ("TIMEOUT of the bench (T)" if timeout else "")
    return ""


def _letter(log: str) -> str:
    for line in log.splitlines():
        for words, letter in _V2_LETTERS:
            if words in line:
                return f"{words} ({letter})"
    if "Unable to bind wire/reg" in log:
        return "Unable to bind wire/reg (p)"
    return "the word 'error' in the log (C)" if "error" in log else ""
