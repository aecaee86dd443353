"""Which leading rows of a table without header marks are its header.

The first row is a header when there is a body below it, it has no numbers, its texts are short
and differ from each other, and at least half of it is filled. Cells that span rows or columns
in it make the header as deep as they reach, at most three rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corpus import table_views
from corpus.measures import is_empty, parse_number
from corpus.parsed import ParsedCell

_MAX_DEPTH: Final = 3
_MAX_NAME_CHARS: Final = 80


def mark_headers(cells: Sequence[ParsedCell]) -> tuple[ParsedCell, ...]:
    """The same cells with `is_header` set on the header rows; unchanged if any is marked."""
    if any(cell.is_header for cell in cells):
        return tuple(cells)
    depth = header_depth(cells)
    return tuple(replace(cell, is_header=cell.row < depth) for cell in cells)


def header_depth(cells: Sequence[ParsedCell]) -> int:
    """Number of leading header rows, 0 when the first row is not a header."""
    n_rows, n_cols = table_views.shape(cells)
    first = [cell for cell in cells if cell.row == 0]
    if n_rows < 2 or n_cols < 2 or not _reads_like_names(first, n_cols):
        return 0
    depth = max((cell.row_span for cell in first), default=1)
    groups = [cell for cell in first if cell.col_span > 1]
    second = [cell for cell in cells if cell.row == 1]
    if depth == 1 and groups and n_rows > 2 and _reads_like_names(second, n_cols):
        depth = 2
    # A row that only part of the header reaches into is a header if the rest of it could be.
    for row in range(1, depth):
        others = [cell for cell in cells if cell.row == row]
        if others and not all(_is_name(cell.text) for cell in others):
            return 0
    return depth if depth < n_rows and depth <= _MAX_DEPTH else 0


def _reads_like_names(row: Sequence[ParsedCell], n_cols: int) -> bool:
    texts = [cell.text.strip() for cell in row if cell.text.strip()]
    filled = sum(cell.col_span for cell in row if cell.text.strip())
    return (
        2 * filled >= n_cols
        and all(_is_name(text) for text in texts)
        and len(set(texts)) > 0.5 * len(texts)
    )


def _is_name(text: str) -> bool:
    text = text.strip()
    return len(text) <= _MAX_NAME_CHARS and (is_empty(text) or parse_number(text) is None)
