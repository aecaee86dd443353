"""Verdict classes for people: which outcomes belong together, and the colour of each class."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

# In the order of a bar: right first, no verdict last.
GROUP_COLOURS: Final = MappingProxyType(
    {
        "right": "#2a9d60",
        "partly right": "#9ccc5a",
        "wrong answer": "#e0a030",
        "no answer in the form asked": "#aeb6c1",
        "did not compile": "#b56576",
        "refused by the gate": "#7b5ea7",
        "ran into a limit": "#5b6575",
        "no verdict": "#ffffff",
    }
)

_GROUPS = {
    "pass": "right",
    "partial": "partly right",
    "mismatch": "wrong answer",
    "runtime": "wrong answer",
    "interface": "did not compile",
    "compile": "did not compile",
    # A hedge or a wall of text is no answer; the other rejections are of code.
    **dict.fromkeys(
        ("rejected:ambiguous", "rejected:wordy", "rejected:digits", "rejected:too_long"),
        "no answer in the form asked",
    ),
}


def outcome_group(outcome: str) -> str:
    """Which of `GROUP_COLOURS` an outcome of `evaluation.verifiers.verdict` belongs to."""
    if outcome in _GROUPS:
        return _GROUPS[outcome]
    return {
        "rejected": "refused by the gate",
        "limit": "ran into a limit",
        "infra": "no verdict",
        "undecided": "no verdict",
    }.get(outcome.partition(":")[0], "no answer in the form asked")
