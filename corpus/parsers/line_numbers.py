"""Line numbers in the margin of a code listing, which belong to the page and not to the code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from corpus.parsers.pdf_raw import RawLine

MIN_RUN: Final = 3
_ALIGNED_PT: Final = 3.0


def find_line_numbers(lines: Sequence[RawLine]) -> set[int]:
    """Positions of lines that number a listing: aligned integers that grow by one, left of code."""
    columns: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for position, line in enumerate(lines):
        if line.upright and line.text.isascii() and line.text.isdigit() and len(line.text) <= 5:
            column = round(line.box.x1 / _ALIGNED_PT)
            columns[column].append((line.box.y0, int(line.text), position))
    found: set[int] = set()
    for numbers in columns.values():
        for run in _growing_runs(sorted(numbers)):
            if len(run) >= MIN_RUN and _beside_code([lines[i] for i in run], lines):
                found.update(run)
    return found


def _growing_runs(numbers: list[tuple[float, int, int]]) -> list[list[int]]:
    runs: list[list[int]] = []
    previous = None
    for _, value, position in numbers:
        if previous is not None and value == previous + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
        previous = value
    return runs


def _beside_code(numbers: Sequence[RawLine], lines: Sequence[RawLine]) -> bool:
    top, bottom = numbers[0].box.y0, numbers[-1].box.y1
    right = max(line.box.x1 for line in numbers)
    beside = [
        line
        for line in lines
        if line.box.x0 >= right - 1 and top - 2 <= (line.box.y0 + line.box.y1) / 2 <= bottom + 2
    ]
    return bool(beside) and sum(line.mono for line in beside) >= len(beside) / 2
