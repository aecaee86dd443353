"""Upstream's design descriptions, as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluation.benchmarks.verilog.problems import Problem, design_folders, read_text


def prompts(source: Path, problems: Mapping[str, Problem]) -> dict[str, str]:
    """By the design's name."""
    folders = {folder.name: folder for folder in design_folders(source)}
    return {name: read_text(folders[name] / "design_description.txt") for name in problems}
