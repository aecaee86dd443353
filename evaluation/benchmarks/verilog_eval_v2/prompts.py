"""Upstream's prompt files, as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluation.benchmarks.verilog.problems import Problem, read_text


def prompts(source: Path, problems: Mapping[str, Problem]) -> dict[str, str]:
    """By task id. In the code-complete form the file ends with the module's header."""
    return {task_id: read_text(source / f"{task_id}_prompt.txt") for task_id in problems}
