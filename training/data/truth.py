"""Ground truths as the JSON that `evaluation.verifiers` reads, one function per verifier kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def exact(value: str, *, case_sensitive: bool = False) -> str:
    """For `exact`."""
    return _dump({"value": value, "case_sensitive": case_sensitive})


def alias(values: Sequence[str], *, case_sensitive: bool = False) -> str:
    """For `alias`: any of several spellings."""
    return _dump({"aliases": list(values), "case_sensitive": case_sensitive})


def items(values: Sequence[str]) -> str:
    """For `set`: all of these, in any order."""
    return _dump({"items": list(values), "case_sensitive": False})


def numeric(value: float, unit: str = "", *, rtol: float = 1e-6) -> str:
    """For `numeric`; a bare number in an answer is read in `unit`."""
    return _dump({"value": value, "unit": unit, "rtol": rtol})


def choice(letter: str, choices: Sequence[str]) -> str:
    """For `choice`: the letter of one of the choices, the first of which is A."""
    return _dump({"letter": letter, "choices": list(choices)})


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
