"""Rows of a mended table that are lines of one row, or two rows that were read as one.

A row goes on from the one above it when no rule parts them, all its texts stand under texts, and
they go on in mid-sentence; or when rows without a first cell stand closer to the row above than
rows with one do, throughout the table.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Final

from corpus.measures import is_empty, parse_number
from corpus.parsers.table_grid import LEADING, Grid, Slot, lines_of, words_text

OPEN_END: Final = re.compile(
    r"(?:[,;(\[{/&+=–-]|\b(?:a|an|and|are|as|at|be|by|for|from|in|into|is|of|on|or|that|the|to|with"
    r"|which|und|der|die|das|de|la|et))$"
)
# Of the distance between rows that begin anew: lines of one row are closer.
CLOSER: Final = 0.75


def join_wrapped_rows(grid: Grid, depth: int) -> None:
    """Make the lines of wrapped rows one row, from the bottom up."""
    gaps = {row: _gap(grid, row) for row in range(depth + 1, grid.n_rows)}
    closer = _closer_rows(grid, gaps, depth)
    for row in range(grid.n_rows - 1, depth, -1):
        gap = gaps.get(row)
        if gap is None or gap > LEADING * grid.height or not _is_under(grid, row, depth):
            continue
        if row in closer or _goes_on(grid, row):
            _join(grid, row)


def _gap(grid: Grid, row: int) -> float | None:
    """Distance to the row above, None where a rule or a spanning cell is between."""
    upper, lower = grid.row_edges(row - 1), grid.row_edges(row)
    if upper is None or lower is None:
        return None
    if any(slot.row < row <= slot.last_row for slot in grid.slots):
        return None
    if grid.rules_between(upper[1] - 0.3 * grid.height, lower[0] + 0.3 * grid.height):
        return None
    return lower[0] - upper[1]


def _closer_rows(grid: Grid, gaps: dict[int, float | None], depth: int) -> set[int]:
    """Rows without a first cell, if all of them stand closer to the row above than others do."""
    without = {r: g for r, g in gaps.items() if g is not None and _first_col(grid, r) > 0}
    others = [g for r, g in gaps.items() if g is not None and _first_col(grid, r) == 0]
    if not without or len(others) < 2 or max(without.values()) > LEADING * grid.height:
        return set()
    limit = min(CLOSER * median(others), min(others) - 1.0)
    values = (slot for row in without for slot in grid.filled(row))
    if any(parse_number(slot.text) is not None for slot in values):
        return set()
    return set(without) if max(without.values()) < limit else set()


def _first_col(grid: Grid, row: int) -> int:
    filled = grid.filled(row)
    return filled[0].col if filled else 0


def _is_under(grid: Grid, row: int, depth: int) -> bool:
    """Each text stands under a text of the row above, which has more, and none is a value."""
    lower, upper = grid.filled(row), grid.filled(row - 1)
    columns = {slot.col for slot in upper if slot.words}
    return (
        bool(lower)
        and len(lower) < len(upper)
        and all(slot.words and slot.col in columns for slot in lower)
        and all(slot.col_span == 1 for slot in (*lower, *upper))
        and not any(parse_number(s.text) is not None or is_empty(s.text) for s in lower)
    )


def _goes_on(grid: Grid, row: int) -> bool:
    """Every text begins in mid-sentence or follows one that is open."""
    pairs = [(grid.at(row - 1, slot.col), slot) for slot in grid.filled(row)]
    return all(
        upper is not None
        and (slot.text[0].islower() or slot.text[0] == "(" or OPEN_END.search(upper.text))
        for upper, slot in pairs
    )


def _join(grid: Grid, row: int) -> None:
    for slot in grid.filled(row):
        upper = grid.at(row - 1, slot.col)
        assert upper is not None
        upper.take(slot)
        upper.row_span = 1
        grid.slots.remove(slot)
    grid.drop_row(row)


def split_stacked_rows(grid: Grid, depth: int) -> None:
    """Split a row whose numbers stand in several lines at the same heights: it is several rows."""
    for row in range(grid.n_rows - 1, -1, -1):
        for _ in range(len(grid.slots)):
            height = _border(grid, row, depth)
            if height is None:
                break
            _split_at(grid, row, height)


def _border(grid: Grid, row: int, depth: int) -> float | None:
    """Where the last line of a row begins, if it is a row of its own."""
    slots = [s for s in grid.filled(row) if s.words and s.row_span == 1]
    if len(slots) < 3 or len(slots) < len(grid.filled(row)):
        return None
    stacks = [lines_of(slot.words) for slot in slots]
    last = min(stack[-1][0].box.y0 for stack in stacks)
    values = [s for s in stacks if _is_value(words_text(s[-1])) and len(s) > 1]
    level = all(abs(stack[-1][0].box.y0 - last) < 0.3 * grid.height for stack in stacks)
    if not level or any(len(stack) < 2 for stack in stacks) or len(values) < len(stacks) - 1:
        return None
    return last - 0.1 * grid.height


def _is_value(text: str) -> bool:
    return parse_number(text) is not None or is_empty(text)


def _split_at(grid: Grid, row: int, height: float) -> None:
    added = []
    for slot in grid.slots:
        if slot.row > row:
            slot.row += 1
        elif slot.row == row and slot.row_span == 1:
            below = [word for word in slot.words if word.box.y0 >= height]
            box = slot.box
            added.append(
                Slot(
                    row + 1,
                    slot.col,
                    1,
                    slot.col_span,
                    words_text(below),
                    False,
                    box._replace(y0=height) if box else None,
                    below,
                )
            )
            slot.words = [word for word in slot.words if word.box.y0 < height]
            slot.text = words_text(slot.words)
            slot.box = box._replace(y1=height) if box else None
        elif slot.last_row >= row:
            slot.row_span += 1
    grid.slots += added
