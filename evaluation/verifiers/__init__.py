"""One verdict per answer, shared by data checks, rewards and benchmarks.

    verify("numeric", '{"value": 12.4, "unit": "mA"}', "Answer: 12.4 mA").passed

| kind | ground truth (JSON) | module |
|---|---|---|
| exact | `{"value": ...}` | `exact` |
| alias | `{"aliases": [...]}` | `alias` |
| choice | `{"letter": "B", "choices": [...]}` | `choice` |
| set | `{"items": [...]}` | `items` |
| numeric | `{"value": 12.4, "unit": "mA", "rtol": 0.005}` | `numeric` |
| regex | `{"pattern": "0x[0-9A-F]{4}"}` | `regex` |
| json_schema | `{"schema": {...}}` | `json_schema` |
| table_program | `{"columns": [...], "rows": [[...]], "program": "SELECT ..."}` | `table_program` |
| verilog_sim | `Golden.ground_truth()` of `verilog` | `verilog` |
| verilog_equiv | `record_equivalence()` of `verilog_equivalence` | `verilog_equivalence` |

How the final answer is found in a text: `extraction`. Every kind ends within bounded time on any
answer. To add one: a module with `verify(ground_truth, answer)` and a line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from evaluation.verifiers import (
    alias,
    choice,
    exact,
    items,
    json_schema,
    numeric,
    regex,
    table_program,
    verilog,
    verilog_equivalence,
)
from evaluation.verifiers.verdict import Verdict, no_verdict
from workspace.errors import UserError

VERSION: Final = "4"  # part of a score's identity: raise it when any verdict may change

KINDS: Mapping[str, Callable[[str, str], Verdict]] = MappingProxyType(
    {
        "exact": exact.verify,
        "alias": alias.verify,
        "choice": choice.verify,
        "set": items.verify,
        "numeric": numeric.verify,
        "regex": regex.verify,
        "json_schema": json_schema.verify,
        "table_program": table_program.verify,
        "verilog_sim": verilog.verify,
        "verilog_equiv": verilog_equivalence.verify,
    }
)


def verify(kind: str, ground_truth: str, answer: str) -> Verdict:
    """The verdict of verifier `kind` on `answer`.

    Raises `UserError` for an unknown kind or a ground truth of the wrong shape; never for
    anything that the answer holds.
    """
    if kind not in KINDS:
        raise UserError(f"unknown verifier {kind!r}: use one of {', '.join(sorted(KINDS))}")
    try:
        return KINDS[kind](ground_truth, answer)
    except OSError as error:
        return no_verdict(error)


__all__ = ["KINDS", "VERSION", "Verdict", "verify"]
