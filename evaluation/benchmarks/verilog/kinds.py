"""What kind of design a problem asks for, as the report groups them.

    kind_of(problem)      # "combinational", "sequential", "state machine", or upstream's folder

RTLLM v2.0 has its designs in folders by kind, which are used as they are. The other benchmarks name
no kinds, so theirs are read off the reference, by rule and not by judgement:

| kind | the reference |
|---|---|
| combinational | has no edge, `always_ff` or `always_latch` |
| state machine | has one, and a `case` over a register, or over a part of one |
| sequential | has one, and no such `case` |

A register is what a non-blocking assignment stands for. A next-state function that is asked for
without its register is combinational by this rule, a one-hot machine without a `case` sequential.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers.verilog_tokens import Token, after_parentheses, tokens_of

COMBINATIONAL: Final = "combinational"
SEQUENTIAL: Final = "sequential"
STATE_MACHINE: Final = "state machine"

_CLOCKED: Final = frozenset({"posedge", "negedge", "always_ff", "always_latch"})
_CASES: Final = frozenset({"case", "casez", "casex"})
_BEFORE_A_STATEMENT: Final = frozenset({";", "begin", "else", ")", ":"})


def kind_of(problem: Problem) -> str:
    """Upstream's kind where it names one, else the rule's."""
    return problem.category or _kind(tokens_of(problem.reference))


def _kind(tokens: Sequence[Token]) -> str:
    if not any(token.text in _CLOCKED for token in tokens):
        return COMBINATIONAL
    registers = _registers(tokens)
    selected = (
        tokens[index + 1 : after_parentheses(tokens, index + 1)]
        for index, token in enumerate(tokens)
        if token.text in _CASES
    )
    chosen = any(token.text in registers for selector in selected for token in selector)
    return STATE_MACHINE if chosen else SEQUENTIAL


def _registers(tokens: Sequence[Token]) -> set[str]:
    """What stands at the start of a non-blocking assignment."""
    found: set[str] = set()
    for index, token in enumerate(tokens[1:], 1):
        if token.kind != "word" or tokens[index - 1].text not in _BEFORE_A_STATEMENT:
            continue
        after = index + 1
        while after < len(tokens) and tokens[after].text == "[":
            after = _after_bracket(tokens, after)
        if [one.text for one in tokens[after : after + 2]] == ["<", "="]:
            found.add(token.text)
    return found


def _after_bracket(tokens: Sequence[Token], index: int) -> int:
    while index < len(tokens) and tokens[index].text != "]":
        index += 1
    return index + 1
