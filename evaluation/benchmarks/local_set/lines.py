"""The lines of a file of your own problems, checked for what all kinds have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from evaluation.verifiers.verilog_tokens import tokens_of, units_of
from workspace.errors import UserError

MAX_FILE_BYTES: Final = 256 << 20
_TEXTS: Final = ("id", "prompt", "system", "kind", "reference", "top", "testbench", "header")
_KEYS: Final = frozenset({*_TEXTS, "answer", "verifier", "ground_truth"})


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Lines by where they stand, in the file's order. `UserError` names line and fault."""
    if not path.is_file():
        raise UserError(f"{path} is no file: give a JSONL file of problems")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UserError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    found: dict[str, dict[str, Any]] = {}
    seen: dict[str, str] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            found[where] = _parse(line, where)
            first = seen.setdefault(found[where]["id"], where)
            if first != where:
                raise UserError(f"{where}: id {found[where]['id']!r} is there already ({first})")
    if not found:
        raise UserError(f"{path} holds no problems")
    return found


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: no JSON ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is wanted, with id and prompt")
    unknown = sorted(row.keys() - _KEYS)
    if unknown:
        raise UserError(f"{where}: unknown key {unknown[0]!r}: keys are {', '.join(sorted(_KEYS))}")
    for key in _TEXTS:
        if key in row and not is_text(row[key]):
            raise UserError(f"{where}: {key!r} must be a text")
    for key in ("id", "prompt"):
        if not row.get(key):
            raise UserError(f"{where}: no text {key!r}")
    if "testbench" in row and "reference" not in row:
        raise UserError(f"{where}: a 'testbench' needs a 'reference' that passes it")
    if "testbench" in row and not units_of(tokens_of(row["testbench"])):
        raise UserError(f"{where}: 'testbench' holds no module")
    return row


def is_text(value: Any) -> TypeGuard[str]:
    """JSON can hold half a surrogate pair, which no file can."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def the_module(line: Mapping[str, Any], where: str) -> str:
    """The module that is asked for: `top`, or the reference's only one."""
    names = [unit.name for unit in units_of(tokens_of(line["reference"]))]
    top = str(line.get("top", names[0] if len(names) == 1 else ""))
    if top not in names:
        raise UserError(f"{where}: 'top' must name a module of the reference ({', '.join(names)})")
    return top
