"""Mend a detected table: columns that were not told apart, wrapped lines, and the header's spans.

`mend(cells, words, rules)` in, cells out; all in points of the page as shown. Applies to any
detector that gives each cell's box. A step acts on evidence alone (rules, gaps that go through all
rows, text that runs on), so that a table that was read well stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corpus.parsed import ParsedCell
from corpus.parsers.table_grid import Grid, Rule, Word
from corpus.parsers.table_header_spans import mend_header

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
    if not any(cell.bbox_pt for cell in cells):
        return tuple(cells)
    grid = Grid(cells, words, rules)
    mend_header(grid)
    return tuple(replace(cell, text=clean_text(cell.text)) for cell in grid.cells())


def clean_text(text: str) -> str:
    """Without leader dots at the end, and with ligatures spelt out."""
    return _LEADER.sub("", text.translate(_LIGATURES)).strip()
