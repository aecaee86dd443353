"""Tables -> facts "row key, column header, cell" with the row as evidence.

Rows of the corpus table `tables` in. A table gives facts only when it has a clear header (one or
more leading rows of header cells, or a first row that is all text above rows that are not), a key
column (the leftmost whose body cells are text-like, filled and all different) and a second column.
Anything else is skipped with a reason: `table_too_small`, `table_no_header`, `table_no_key`,
`table_layout` (mostly empty or long prose cells). A column named "Unit" gives the unit of its row.

Spanned cells hold for every position that they cover; headers of several rows are joined by " / ".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from knowledge_graph.candidates import NOT_FROM_TEXT, Extraction, Mention, Relation
from knowledge_graph.extractors.quantities import is_number, split_header, split_quantity
from knowledge_graph.names import clean_surface, is_quantity, norm_key

MAX_KEY_CHARS: Final = 60
MAX_KEY_WORDS: Final = 8
MAX_VALUE_CHARS: Final = 300
MAX_HEADER_CHARS: Final = 60
MAX_HEADER_ROWS: Final = 3
LONG_CELL_CHARS: Final = 400
_EMPTY: Final = frozenset({"", "-", "–", "—", "n/a", "N/A", "n.a.", "...", "…", "--", "."})
_UNIT_HEADER: Final = re.compile(r"units?\.?|uom", re.IGNORECASE)
_HEADER_CUT: Final = " /:,;-"


class Grid(NamedTuple):
    """A table as positions: `texts[row][col]`, with the cell that covers each position."""

    texts: list[list[str]]
    cells: list[list[Mapping[str, Any] | None]]
    n_header_rows: int


def extract_table(row: Mapping[str, Any]) -> Extraction:
    """Facts and mentions of one table; empty with a counted reason when it states none."""
    found = Extraction()
    grid = _grid(row)
    reason = _refuse(grid)
    if reason:
        found.rejects[reason] += 1
        return found
    key_col = _key_column(grid)
    if key_col is None:
        found.rejects["table_no_key"] += 1
        return found
    headers = [_header(grid, col) for col in range(len(grid.texts[0]))]
    unit_col = next((c for c, h in enumerate(headers) if _UNIT_HEADER.fullmatch(h)), None)
    _mention_headers(row, grid, headers, found)
    for index in range(grid.n_header_rows, len(grid.texts)):
        _extract_row(row, grid, index, key_col, unit_col, headers, found)
    return found


def _grid(row: Mapping[str, Any]) -> Grid:
    n_rows, n_cols = int(row["n_rows"]), int(row["n_cols"])
    texts = [[""] * n_cols for _ in range(n_rows)]
    cells: list[list[Mapping[str, Any] | None]] = [[None] * n_cols for _ in range(n_rows)]
    for cell in row["cells"] or ():
        text = " ".join((cell["text"] or "").split())
        for r in range(cell["row"], min(cell["row"] + max(cell["row_span"], 1), n_rows)):
            for c in range(cell["col"], min(cell["col"] + max(cell["col_span"], 1), n_cols)):
                texts[r][c] = text
                cells[r][c] = cell
    return Grid(texts, cells, _count_header_rows(texts, cells))


def _count_header_rows(
    texts: Sequence[Sequence[str]], cells: Sequence[Sequence[Mapping[str, Any] | None]]
) -> int:
    """Leading rows marked as header; unmarked, the first row when it alone is all text."""
    marked = 0
    for line in cells:
        present = [cell for cell in line if cell is not None]
        if not present or not all(cell["is_header"] for cell in present):
            break
        marked += 1
    if marked:
        return marked
    if len(texts) < 3:
        return 0
    first, body = texts[0], texts[1:]
    if any(text in _EMPTY or _is_numeric(text) for text in first[1:]) or len(set(first)) < len(
        first
    ):
        return 0
    numeric_columns = sum(
        all(_is_numeric(line[col]) for line in body if line[col] not in _EMPTY)
        and any(line[col] not in _EMPTY for line in body)
        for col in range(len(first))
    )
    return 1 if numeric_columns else 0


def _refuse(grid: Grid) -> str:
    n_cols = len(grid.texts[0]) if grid.texts else 0
    body = grid.texts[grid.n_header_rows :]
    if n_cols < 2 or len(grid.texts) < 2:
        return "table_too_small"
    if not 1 <= grid.n_header_rows <= MAX_HEADER_ROWS:
        return "table_no_header"
    if not body:
        return "table_too_small"
    values = [text for line in body for text in line]
    filled = [text for text in values if text not in _EMPTY]
    if 3 * len(filled) < len(values) or any(len(text) > 4 * LONG_CELL_CHARS for text in filled):
        return "table_layout"
    if sum(len(text) > LONG_CELL_CHARS for text in filled) * 4 > len(filled):
        return "table_layout"
    if len({_header(grid, c) for c in range(n_cols)}) < 2:
        return "table_no_header"
    return ""


def _key_column(grid: Grid) -> int | None:
    body = grid.texts[grid.n_header_rows :]
    # A key further right is more often a coincidence than a key.
    for col in range(min(2, len(grid.texts[0]) - 1)):
        keys = [line[col] for line in body]
        if (
            len(set(keys)) == len(keys)
            and all(map(_is_key, keys))
            and len({norm_key(key) for key in keys}) == len(keys)
        ):
            return col
    return None


def _is_key(text: str) -> bool:
    name = clean_surface(text)
    return (
        text not in _EMPTY
        and any(map(str.isalpha, name))
        and len(name) <= MAX_KEY_CHARS
        and len(name.split()) <= MAX_KEY_WORDS
        and not is_quantity(name)
        and bool(norm_key(name))
    )


def _is_numeric(text: str) -> bool:
    return is_number(text) or bool(split_quantity(text).unit)


def _header(grid: Grid, col: int) -> str:
    parts: list[str] = []
    for line in grid.texts[: grid.n_header_rows]:
        text = line[col].strip(_HEADER_CUT)
        if text and text not in parts:
            parts.append(text)
    return " / ".join(parts)


def _mention_headers(
    row: Mapping[str, Any], grid: Grid, headers: Sequence[str], found: Extraction
) -> None:
    for col, header in enumerate(headers):
        name = clean_surface(split_header(header).name)
        key = norm_key(name)
        cell = grid.cells[grid.n_header_rows - 1][col]
        if not key or len(name) > MAX_HEADER_CHARS or not any(map(str.isalpha, name)):
            found.rejects["header_not_a_name"] += 1
            continue
        found.mentions.append(_mention(row, "table_header", key, name, cell, col))


def _extract_row(
    row: Mapping[str, Any],
    grid: Grid,
    index: int,
    key_col: int,
    unit_col: int | None,
    headers: Sequence[str],
    found: Extraction,
) -> None:
    line = grid.texts[index]
    name = clean_surface(line[key_col])
    key = norm_key(name)
    key_cell = grid.cells[index][key_col]
    slot = (index + 1) * 10_000 + key_col
    found.mentions.append(_mention(row, "table_key", key, name, key_cell, slot))
    row_unit = line[unit_col] if unit_col is not None and line[unit_col] not in _EMPTY else ""
    evidence = _evidence(headers, line)
    for col, value, unit, predicate in _facts(line, headers, {key_col, unit_col}, found.rejects):
        cell = grid.cells[index][col]
        found.relations.append(
            Relation(
                row["doc_id"],
                _page(row),
                row["order"],
                row["element_id"],
                row["table_id"],
                key,
                predicate,
                "",
                value,
                unit or (row_unit if is_number(value) else ""),
                "table",
                evidence,
                _box(cell, row),
            )
        )


def _facts(
    line: Sequence[str], headers: Sequence[str], skipped: set[int | None], rejects: Counter[str]
) -> Iterator[tuple[int, str, str, str]]:
    """(column, value, unit, predicate) of each cell that states something."""
    for col, text in enumerate(line):
        if col in skipped:
            continue
        header = split_header(headers[col])
        if text in _EMPTY:
            rejects["cell_empty"] += 1
        elif not header.name or len(header.name) > MAX_HEADER_CHARS:
            rejects["cell_without_header"] += 1
        elif len(text) > MAX_VALUE_CHARS:
            rejects["cell_too_long"] += 1
        elif headers.count(headers[col]) > 1:
            rejects["cell_ambiguous_header"] += 1
        else:
            quantity = split_quantity(text)
            unit = quantity.unit or (header.unit if is_number(quantity.value) else "")
            yield col, quantity.value, unit, header.name


def _mention(
    row: Mapping[str, Any],
    kind: str,
    key: str,
    name: str,
    cell: Mapping[str, Any] | None,
    slot: int,
) -> Mention:
    return Mention(
        row["doc_id"],
        _page(row),
        row["order"],
        row["element_id"],
        NOT_FROM_TEXT,
        NOT_FROM_TEXT,
        NOT_FROM_TEXT,
        kind,
        key,
        name,
        name,
        slot,
        _box(cell, row),
    )


def _box(cell: Mapping[str, Any] | None, row: Mapping[str, Any]) -> list[float] | None:
    """The cell's box, else the table's."""
    box = (cell or {}).get("bbox_pt") or row["bbox_pt"]
    return list(box) if box else None


def _page(row: Mapping[str, Any]) -> int:
    return int(row["page"])


def _evidence(headers: Sequence[str], line: Sequence[str]) -> str:
    """The row as text: "Pin: VDD | Min: 1.7 | Max: 3.6"."""
    parts = [
        f"{header}: {text}" if header else text
        for header, text in zip(headers, line, strict=True)
        if text not in _EMPTY
    ]
    return " | ".join(parts)[:1_000]
