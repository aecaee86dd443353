"""Mend a detected table: columns that were not told apart, wrapped lines, and the header's spans.

`mend(cells, words, rules)` in, cells out; all in points of the page as shown. Applies to any
detector that gives each cell's box. A step acts on evidence alone (rules, gaps that go through all
rows, text that runs on), so that a table that was read well stays as it is. Tables of more than
MAX_CELLS cells, and cells without boxes, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corpus.parsed import ParsedCell
from corpus.parsers.table_columns import drop_false_columns, split_columns
from corpus.parsers.table_grid import Grid, Rule, Word
from corpus.parsers.table_header_spans import drop_title, header_depth, mend_header
from corpus.parsers.table_rows import join_wrapped_rows, split_stacked_rows

# A page holds no more; the steps are quadratic, and documents are hostile.
MAX_CELLS: Final = 4_000

_LEADER: Final = re.compile(r"(?:\s*[.…·]){4,}\s*$|\s*…+\s*$")
_LIGATURES: Final = {
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
    0xFB03: "ffi",
    0xFB04: "ffl",
    0xFB05: "st",
    0xFB06: "st",
}


def mend(
    cells: Sequence[ParsedCell], words: Sequence[Word], rules: Sequence[Rule]
) -> tuple[ParsedCell, ...]:
    """The cells of the table as it was meant."""
    if len(cells) > MAX_CELLS or not any(cell.bbox_pt for cell in cells):
        return tuple(cells)
    grid = Grid(cells, words, rules)
    drop_title(grid)
    split_columns(grid, header_depth(grid))
    split_stacked_rows(grid, header_depth(grid))
    depth = header_depth(grid)
    drop_false_columns(grid, depth)
    join_wrapped_rows(grid, mend_header(grid, depth))
    return tuple(replace(cell, text=clean_text(cell.text)) for cell in grid.cells())


def clean_text(text: str) -> str:
    """Without leader dots at the end, and with ligatures spelt out."""
    return _LEADER.sub("", text.translate(_LIGATURES)).strip()
