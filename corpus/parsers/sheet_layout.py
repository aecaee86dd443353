"""Rows of a sheet -> titles, notes and tables.

Blank rows part blocks, and columns that are blank all the way down part tables side by side, unless
a part would be a single column. Rows of a single filled cell above a block's table are its titles;
a block without a second column is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from corpus.parsed import Fault, ParsedCell, ParsedElement
from corpus.parsers import documents
from corpus.parsers.table_headers import mark_headers
from corpus.parsers.unstructured_setup import classify

MAX_CELLS: Final = 1_000_000  # of one file, empty ones inside tables included


class Merge(NamedTuple):
    """A merged range; rows and columns from 0, ends included."""

    first_row: int
    first_col: int
    last_row: int
    last_col: int


@dataclass(frozen=True)
class Limits:
    """Caps of one sheet, and what counts as a table."""

    max_rows: int
    max_cells: int = MAX_CELLS
    split_columns: bool = True
    always_table: bool = False  # a single column is a table too


@dataclass
class _Block:
    """Rows without a blank row between them; texts by column."""

    first_row: int
    rows: list[dict[int, str]]


def lay_out(
    rows: Iterable[tuple[int, dict[int, str]]],
    merges: Sequence[Merge],
    limits: Limits,
    *,
    page: int,
) -> tuple[list[ParsedElement], list[Fault], int]:
    """Elements, faults and the number of cells used.

    `rows` are (row number, filled cells by column) in rising order; blank rows may be left out.
    """
    elements: list[ParsedElement] = []
    kept, dropped = _within(rows, limits.max_cells)
    columns = {col for _, cells in kept for col in cells}
    used = 0
    for block in _blocks(kept, limits.max_rows):
        if isinstance(block, int):
            dropped += block
            continue
        for part in _split_columns(block, columns) if limits.split_columns else [block]:
            area = _area(part)
            if used + area > limits.max_cells:
                dropped += len(part.rows)
                continue
            used += area
            elements.extend(_captioned(_elements(part, merges, limits, page), elements))
    faults = []
    if dropped:
        detail = f"{dropped} rows beyond {limits.max_rows} rows a table or {limits.max_cells} cells"
        faults.append(Fault(page, "tables", "rows_dropped", detail))
    return elements, faults, used


def _within(
    rows: Iterable[tuple[int, dict[int, str]]], max_cells: int
) -> tuple[list[tuple[int, dict[int, str]]], int]:
    """The rows up to `max_cells` filled cells, and the number of filled rows after them."""
    kept: list[tuple[int, dict[int, str]]] = []
    left = max_cells
    dropped = 0
    for number, cells in rows:
        left -= len(cells)
        if left >= 0:
            kept.append((number, cells))
        elif cells:
            dropped += 1
    return kept, dropped


def _blocks(rows: Iterable[tuple[int, dict[int, str]]], max_rows: int) -> Iterable[_Block | int]:
    """Blocks, and the number of rows left out of the one before."""
    block: _Block | None = None
    last = over = 0
    for number, cells in rows:
        if not cells:
            continue
        if block is not None and number > last + 1:
            yield block
            if over:
                yield over
            block, over = None, 0
        last = number
        if block is None:
            block = _Block(number, [cells])
        elif len(block.rows) < max_rows:
            block.rows.append(cells)
        else:
            over += 1
    if block is not None:
        yield block
        if over:
            yield over


def _split_columns(block: _Block, used: set[int]) -> list[_Block]:
    """Parts of `block` on either side of columns that nothing on the sheet uses."""
    groups: list[list[int]] = []
    for col in sorted({col for row in block.rows for col in row}):
        if groups and all(gap in used for gap in range(groups[-1][-1] + 1, col)):
            groups[-1].append(col)
        else:
            groups.append([col])
    if len(groups) == 1 or len(block.rows) < 2 or min(map(len, groups)) < 2:
        return [block]
    parts = []
    for group in groups:
        wanted = set(group)
        rows = [{col: text for col, text in row.items() if col in wanted} for row in block.rows]
        start = next(index for index, row in enumerate(rows) if row)
        while not rows[-1]:
            rows.pop()
        parts.append(_Block(block.first_row + start, rows[start:]))
    return parts


def _area(block: _Block) -> int:
    columns = {col for row in block.rows for col in row}
    return len(block.rows) * (max(columns) - min(columns) + 1)


def _captioned(new: list[ParsedElement], before: list[ParsedElement]) -> list[ParsedElement]:
    """A title that a blank row parts from the table below it is still its caption."""
    first = new[0]
    if first.table is None or not before or before[-1].category != "Title":
        return new
    return [replace(first, table=replace(first.table, caption=before[-1].text)), *new[1:]]


def _elements(
    block: _Block, merges: Sequence[Merge], limits: Limits, page: int
) -> list[ParsedElement]:
    titles: list[str] = []
    rows = list(block.rows)
    while rows and len(rows[0]) == 1:
        titles.append(next(iter(rows.pop(0).values())))
    if not rows and limits.always_table and len(titles) > 1:
        return [documents.table_element(_cells(block, merges), page=page)]
    if all(len(row) == 1 for row in rows):
        texts = titles + [next(iter(row.values())) for row in rows]
        return [_text(text, page, may_be_title=len(texts) <= 2) for text in texts]
    table = _Block(block.first_row + len(titles), rows)
    caption = titles[-1] if titles and len(titles[-1]) <= 200 else ""
    cells = mark_headers(_cells(table, merges))
    return [
        *(_text(text, page) for text in titles),
        documents.table_element(cells, page=page, caption=caption),
    ]


def _cells(block: _Block, merges: Sequence[Merge]) -> list[ParsedCell]:
    """Cells of the block's bounding box; merged ranges are cut to it."""
    first_col = min(col for row in block.rows for col in row)
    last_col = max(col for row in block.rows for col in row)
    last_row = block.first_row + len(block.rows) - 1
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    covered: set[tuple[int, int]] = set()
    for merge in merges:
        if not (block.first_row <= merge.first_row <= last_row):
            continue
        if not (first_col <= merge.first_col <= last_col):
            continue
        bottom, right = min(merge.last_row, last_row), min(merge.last_col, last_col)
        area = {
            (row, col)
            for row in range(merge.first_row, bottom + 1)
            for col in range(merge.first_col, right + 1)
        }
        if area & covered:
            continue
        covered |= area
        origin = (merge.first_row, merge.first_col)
        spans[origin] = (bottom - merge.first_row + 1, right - merge.first_col + 1)
    return [
        ParsedCell(
            row - block.first_row,
            col - first_col,
            texts.get(col, ""),
            *spans.get((row, col), (1, 1)),
        )
        for row, texts in enumerate(block.rows, block.first_row)
        for col in range(first_col, last_col + 1)
        if (row, col) not in covered or (row, col) in spans
    ]


def _text(text: str, page: int, *, may_be_title: bool = True) -> ParsedElement:
    category = classify(text)
    if category == "Title" and not may_be_title:
        category = "UncategorizedText"
    return ParsedElement(category, text, page=page, level=2 if category == "Title" else 0)
