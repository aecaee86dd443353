"""A table's cells as a grid of positions, with header and body told apart.

Spanned cells hold for every position that they cover. Banners (one cell across the whole width: a
caption inside the table, a section title between rows) are taken out, and a row that only continues
the row above (as PDF tables break them) is joined to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from knowledge_graph.extractors.quantities import is_number, split_quantity

MAX_POSITIONS: Final = 2_000_000
EMPTY: Final = frozenset({"", "-", "–", "—", "n/a", "N/A", "n.a.", "...", "…", "--", "."})
_HEADER_CUT: Final = " /:,;-"

Cell = Mapping[str, Any]


class Line(NamedTuple):
    """One row of the grid; `cells` has the cell that covers each position."""

    texts: list[str]
    cells: list[Cell | None]


class Grid(NamedTuple):
    """`headers` has one text per column, parts of several header rows joined by " / "."""

    headers: list[str]
    n_header_rows: int
    header_cells: list[Cell | None]
    body: list[Line]


def build_grid(row: Mapping[str, Any]) -> Grid | None:
    """The grid of a row of `tables`; None when it is larger than anything that is a table."""
    n_rows, n_cols = int(row["n_rows"]), int(row["n_cols"])
    if n_rows * n_cols > MAX_POSITIONS:
        return None
    lines = [Line([""] * n_cols, [None] * n_cols) for _ in range(n_rows)]
    for cell in row["cells"] or ():
        text = " ".join((cell["text"] or "").split())
        for r in range(cell["row"], min(cell["row"] + max(cell["row_span"], 1), n_rows)):
            for c in range(cell["col"], min(cell["col"] + max(cell["col_span"], 1), n_cols)):
                lines[r].texts[c] = text
                lines[r].cells[c] = cell
    banners = [line for line in lines if _is_banner(line)]
    lines = [line for line in lines if not _is_banner(line)]
    n_header = _count_header_rows(lines)
    if not n_header and any(map(_is_marked, banners)):
        n_header = 1  # the caption took the mark that the row below it should have
    header, body = lines[:n_header], _join_continued(lines[n_header:])
    return Grid(
        [_header(header, col) for col in range(n_cols)],
        n_header,
        header[-1].cells if header else [None] * n_cols,
        body,
    )


def is_numeric(text: str) -> bool:
    """A number, or a number with a unit."""
    return is_number(text) or bool(split_quantity(text).unit)


def _is_banner(line: Line) -> bool:
    """The same text over all columns, or nothing at all."""
    return not any(line.texts) or (len(line.texts) > 1 and len(set(line.texts)) == 1)


def _is_marked(line: Line) -> bool:
    present = [cell for cell in line.cells if cell is not None]
    return bool(present) and all(cell["is_header"] for cell in present)


def _count_header_rows(lines: Sequence[Line]) -> int:
    """Leading rows marked as header; unmarked, the first row when it alone is all text."""
    marked = 0
    for line in lines:
        if not _is_marked(line):
            break
        marked += 1
    if marked or len(lines) < 3:
        return marked
    first, body = lines[0].texts, lines[1:]
    if len(set(first)) < len(first) or any(t in EMPTY or is_numeric(t) for t in first[1:]):
        return 0
    columns = ([line.texts[col] for line in body] for col in range(len(first)))
    return int(any(_is_numeric_column(column) for column in columns))


def _is_numeric_column(texts: Sequence[str]) -> bool:
    filled = [text for text in texts if text not in EMPTY]
    return bool(filled) and all(map(is_numeric, filled))


def _join_continued(lines: Sequence[Line]) -> list[Line]:
    """Append a row with one filled cell, not in the first column, to the same cell above."""
    joined: list[Line] = []
    for line in lines:
        filled = [col for col, text in enumerate(line.texts) if text]
        if joined and len(filled) == 1 and filled[0] > 0 and joined[-1].texts[filled[0]]:
            joined[-1].texts[filled[0]] += " " + line.texts[filled[0]]
        else:
            joined.append(line)
    return joined


def _header(lines: Sequence[Line], col: int) -> str:
    parts: list[str] = []
    for line in lines:
        text = line.texts[col].strip(_HEADER_CUT)
        if text and text not in parts:
            parts.append(text)
    return " / ".join(parts)
