"""Upstream's descriptions and module headers -> prompts, with an instruction of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation.benchmarks.verilog.contents import layout_of
from evaluation.benchmarks.verilog.problems import Problem, read_text
from workspace.errors import UserError

_FILES = {
    "verilog_eval_v1_human": "VerilogDescription_Human.jsonl",
    "verilog_eval_v1_machine": "VerilogDescription_Machine.jsonl",
}


def prompts(source: Path, problems: Mapping[str, Problem]) -> dict[str, str]:
    """By task id. `UserError` names the file, or the problem that has no description."""
    name = next(iter(problems.values())).benchmark
    path = _find(source, _FILES[layout_of(name)])
    said: dict[str, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            row = _parse(line, f"{path}, line {number}")
            said[row["task_id"]] = row["detail_description"]
    missing = sorted(problems.keys() - said.keys())
    if missing:
        raise UserError(f"{path} describes no problem {missing[0]!r}")
    return {
        task_id: f"{said[task_id].strip()}\n\n{problem.interface.strip()}\n"
        for task_id, problem in problems.items()
    }


def _find(source: Path, file: str) -> Path:
    """Beside the problems: `source` is upstream's folder, its `data`, or the JSONL in that."""
    near = [source, source.parent, source.parent.parent]
    places = [folder / "descriptions" / file for folder in near] + [source / file]
    return next((place for place in places if place.is_file()), places[0])


def _parse(line: str, where: str) -> dict[str, str]:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: no JSON ({error})") from error
    for key in ("task_id", "detail_description"):
        if not isinstance(row, dict) or not isinstance(row.get(key), str):
            raise UserError(f"{where}: no text {key!r}, which VerilogEval v1 has")
    return dict(row)
