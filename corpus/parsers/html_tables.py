"""A `<table>` element -> cells with spans, following the HTML table model.

Spans are clamped to the table, overlapping cells give way to the right, the text of nested tables
belongs to the cell that holds them, and rows that only continue spans are left out. `<th>` and
rows of `<thead>` are headers; a table with neither gets its header from `table_headers`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Final, NamedTuple

from lxml.html import HtmlElement

from corpus.parsed import ParsedCell
from corpus.parsers.table_headers import mark_headers

_MAX_COLUMNS: Final = 1_000
_BLOCKS: Final = frozenset(
    ["p", "div", "li", "br", "tr", "h1", "h2", "h3", "h4", "pre", "dt", "dd"]
)
_INVISIBLE: Final = frozenset(["script", "style", "template", "noscript"])


class ReadTable(NamedTuple):
    """Cells, and how many rows were left out because of the cap."""

    cells: tuple[ParsedCell, ...]
    dropped_rows: int


def read_table(table: HtmlElement, *, max_rows: int) -> ReadTable:
    """Cells of the first `max_rows` rows."""
    rows = list(_rows(table))
    kept = rows[:max_rows]
    cells: list[ParsedCell] = []
    taken: dict[int, set[int]] = {}  # row -> columns covered from above
    for index, row in enumerate(kept):
        in_head = row.getparent() is not None and row.getparent().tag == "thead"
        last_row = _group_end(kept, index)
        column = 0
        for cell in row.iterchildren("td", "th"):
            covered = taken.setdefault(index, set())
            while column in covered:
                column += 1
            if column >= _MAX_COLUMNS:
                break
            row_span = _span(cell, "rowspan", last_row - index)
            col_span = _free_columns(covered, column, _span(cell, "colspan", _MAX_COLUMNS - column))
            for below in range(index, index + row_span):
                taken.setdefault(below, set()).update(range(column, column + col_span))
            text = cell_text(cell)
            is_header = in_head or cell.tag == "th"
            cells.append(ParsedCell(index, column, text, row_span, col_span, is_header))
            column += col_span
    return ReadTable(mark_headers(_without_hollow_rows(cells)), len(rows) - len(kept))


def _without_hollow_rows(cells: list[ParsedCell]) -> list[ParsedCell]:
    """Leave out rows that show nothing of their own: each of their cells spans other rows too."""
    spans = [cell.row_span for cell in cells]
    over: dict[int, list[int]] = {}
    for index, cell in enumerate(cells):
        for row in range(cell.row, cell.row + cell.row_span):
            over.setdefault(row, []).append(index)
    removed: list[int] = []
    for row in sorted(over):
        if all(spans[index] > 1 for index in over[row]):
            removed.append(row)
            for index in over[row]:
                spans[index] -= 1
    if not removed:
        return cells
    return [
        replace(cell, row=cell.row - bisect_left(removed, cell.row), row_span=span)
        for cell, span in zip(cells, spans, strict=True)
    ]


def cell_text(element: HtmlElement) -> str:
    """Visible text with a line per block, spaces collapsed."""
    parts: list[str] = []
    _collect(element, parts)
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)


def _collect(element: HtmlElement, parts: list[str]) -> None:
    # Recursion is bounded: lxml's parser refuses to nest deeper than 256.
    parts.append(_one_line(element.text))
    for child in element:
        if isinstance(child.tag, str) and child.tag not in _INVISIBLE:
            is_block = child.tag in _BLOCKS
            parts.append("\n" if is_block else "")
            _collect(child, parts)
            parts.append("\n" if is_block else "")
        parts.append(_one_line(child.tail))


def _one_line(text: str | None) -> str:
    return (text or "").replace("\n", " ")


def _rows(table: HtmlElement) -> list[HtmlElement]:
    """Own rows in the order shown: head, bodies, foot."""
    direct = list(table.iterchildren("tr", "tbody", "thead", "tfoot"))
    order = {"thead": 0, "tfoot": 2}
    direct.sort(key=lambda child: order.get(child.tag, 1))
    rows: list[HtmlElement] = []
    for child in direct:
        rows.extend([child] if child.tag == "tr" else child.iterchildren("tr"))
    return rows


def _group_end(rows: list[HtmlElement], index: int) -> int:
    """Index after the last row of the row group of `rows[index]`: spans end there."""
    group = rows[index].getparent()
    end = index + 1
    while end < len(rows) and rows[end].getparent() is group:
        end += 1
    return end


def _span(cell: HtmlElement, name: str, limit: int) -> int:
    """A span attribute between 1 and `limit`; `rowspan="0"` reaches the end of the group."""
    written = (cell.get(name) or "1").strip()
    if not written.isascii() or not written.isdigit():
        return 1
    value = int(written[:6])
    if value == 0 and name == "rowspan":
        value = limit
    return max(1, min(value, limit))


def _free_columns(covered: set[int], start: int, wanted: int) -> int:
    width = 1
    while width < wanted and start + width not in covered:
        width += 1
    return width
