"""Tables -> facts "row key, column header, cell" with the row as evidence.

Rows of the corpus table `tables` in. A table gives facts only when it has a clear header (leading
rows of header cells, or a first row that is all text above rows that are not) and a key column:
one whose header says that it holds names, else the first or second, whose texts are all different.
Anything else is skipped with a reason: `table_too_small`, `table_too_large`, `table_no_header`,
`table_no_key`, `table_layout` (mostly empty, or long prose cells). A row whose key is empty or a
number is skipped as `row_without_key`. A column named "Unit" gives the unit of its row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from knowledge_graph.candidates import NOT_FROM_TEXT, Extraction, Mention, Relation
from knowledge_graph.extractors.quantities import is_number, split_header, split_quantity
from knowledge_graph.extractors.table_grid import EMPTY, Cell, Grid, Line, build_grid
from knowledge_graph.names import clean_surface, is_quantity, norm_key

MAX_KEY_CHARS: Final = 60
MAX_KEY_WORDS: Final = 8
MAX_VALUE_CHARS: Final = 300
MAX_HEADER_CHARS: Final = 60
MAX_HEADER_ROWS: Final = 3
LONG_CELL_CHARS: Final = 400
SLOTS_PER_ROW: Final = 10_000
_UNIT_HEADER: Final = re.compile(r"units?\.?|uom", re.IGNORECASE)
_KEY_HEADER: Final = re.compile(
    r"(?:(?:signal|pin|port|register|field|parameter|cell|module|instruction|block|bit)\s+)?"
    r"(?:name|symbol|mnemonic|signal|pin|port|register|field|parameter|cell|instruction|opcode|"
    r"module|component|item)s?$",
    re.IGNORECASE,
)
# Access modes and directions stand in many tables and name no row.
_ACCESS_MODES: Final = """
rw r w ro wo r/w r/o w/o wlrl warl wpri rc w1c i o io in out input output inout yes no x true false
reserved res0 rsvd
"""
_NOT_KEYS: Final = frozenset(_ACCESS_MODES.split())


def extract_table(row: Mapping[str, Any]) -> Extraction:
    """Facts and mentions of one table; empty with a counted reason when it states none."""
    found = Extraction()
    grid = build_grid(row)
    reason = _refuse(grid)
    key_col = _key_column(grid) if grid and not reason else None
    if grid is None or key_col is None:
        found.rejects[reason or "table_no_key"] += 1
        return found
    _mention_headers(row, grid, found)
    seen: set[str] = set()
    for index, line in enumerate(grid.body):
        key = norm_key(line.texts[key_col]) if is_key(line.texts[key_col]) else ""
        if not key or key in seen:
            found.rejects["row_without_key"] += 1
            continue
        seen.add(key)
        _extract_row(row, grid, index, key_col, found)
    return found


def is_key(text: str) -> bool:
    """Whether a cell names its row: text, short, neither a quantity nor an access mode."""
    name = clean_surface(text)
    return (
        text not in EMPTY
        and any(map(str.isalpha, name))
        and len(name) <= MAX_KEY_CHARS
        and len(name.split()) <= MAX_KEY_WORDS
        and name.lower() not in _NOT_KEYS
        and not is_quantity(name)
        and bool(norm_key(name))
    )


def _refuse(grid: Grid | None) -> str:
    if grid is None:
        return "table_too_large"
    n_cols = len(grid.headers)
    if n_cols < 2 or not grid.body:
        return "table_too_small"
    if not 1 <= grid.n_header_rows <= MAX_HEADER_ROWS or len(set(grid.headers)) < 2:
        return "table_no_header"
    values = [text for line in grid.body for text in line.texts]
    filled = [text for text in values if text not in EMPTY]
    long = sum(len(text) > LONG_CELL_CHARS for text in filled)
    if 3 * len(filled) < len(values) or 4 * long > len(filled):
        return "table_layout"
    return ""


def _key_column(grid: Grid) -> int | None:
    """A column whose header says so, else the first or, in a longer table, the second."""
    named = [col for col, header in enumerate(grid.headers) if _KEY_HEADER.match(header)]
    second = [1] if len(grid.headers) > 2 and len(grid.body) > 1 else []
    for col in dict.fromkeys([*named, 0, *second]):
        texts = [line.texts[col] for line in grid.body]
        keys = [norm_key(text) for text in texts if is_key(text)]
        # Reserved bits and the like have no name; a key that repeats is none.
        share = 0.3 if col in named else 0.6
        if keys and len(set(keys)) == len(keys) and len(keys) >= share * len(texts):
            return col
    return None


def _mention_headers(row: Mapping[str, Any], grid: Grid, found: Extraction) -> None:
    for col, header in enumerate(grid.headers):
        name = clean_surface(split_header(header).name)
        key = norm_key(name)
        if not key or len(name) > MAX_HEADER_CHARS or not any(map(str.isalpha, name)):
            found.rejects["header_not_a_name"] += 1
            continue
        found.mentions.append(_mention(row, "table_header", key, name, grid.header_cells[col], col))


def _extract_row(
    row: Mapping[str, Any], grid: Grid, index: int, key_col: int, found: Extraction
) -> None:
    line = grid.body[index]
    name = clean_surface(line.texts[key_col])
    slot = (index + 1) * SLOTS_PER_ROW + key_col
    found.mentions.append(
        _mention(row, "table_key", norm_key(name), name, line.cells[key_col], slot)
    )
    unit_col = next((c for c, h in enumerate(grid.headers) if _UNIT_HEADER.fullmatch(h)), None)
    row_unit = line.texts[unit_col] if unit_col is not None else ""
    for fact in _facts(line, grid.headers, {key_col, unit_col}, found.rejects):
        unit = fact.unit or (row_unit if is_number(fact.value) and row_unit not in EMPTY else "")
        found.relations.append(
            Relation(
                row["doc_id"],
                _page(line.cells[fact.col], row),
                row["order"],
                row["element_id"],
                row["table_id"],
                norm_key(name),
                fact.predicate,
                "",
                fact.value,
                unit,
                "table",
                _evidence(grid.headers, line),
                _box(line.cells[fact.col], row),
            )
        )


class _Fact(NamedTuple):
    col: int
    predicate: str
    value: str
    unit: str


def _facts(
    line: Line, headers: Sequence[str], skipped: set[int | None], rejects: Counter[str]
) -> Iterator[_Fact]:
    """What each cell of a row states."""
    for col, text in enumerate(line.texts):
        if col in skipped:
            continue
        header = split_header(headers[col])
        if text in EMPTY:
            rejects["cell_empty"] += 1
        elif not header.name or len(header.name) > MAX_HEADER_CHARS:
            rejects["cell_without_header"] += 1
        elif len(text) > MAX_VALUE_CHARS:
            rejects["cell_too_long"] += 1
        elif headers.count(headers[col]) > 1:
            rejects["cell_ambiguous_header"] += 1
        else:
            value, unit = split_quantity(text)
            unit = unit or (header.unit if is_number(value) else "")
            yield _Fact(col, header.name, value, unit)


def _mention(
    row: Mapping[str, Any], kind: str, key: str, name: str, cell: Cell | None, slot: int
) -> Mention:
    return Mention(
        row["doc_id"],
        _page(cell, row),
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


def _page(cell: Cell | None, row: Mapping[str, Any]) -> int:
    """The page that the cell stands on, else the table's first."""
    return int((cell or {}).get("page") or row["page"])


def _box(cell: Cell | None, row: Mapping[str, Any]) -> list[float] | None:
    """The cell's box, else the table's."""
    box = (cell or {}).get("bbox_pt") or row["bbox_pt"]
    return list(box) if box else None


def _evidence(headers: Sequence[str], line: Line) -> str:
    """The row as text: "Pin: VDD | Min: 1.7 | Max: 3.6"."""
    parts = [
        f"{header}: {text}" if header else text
        for header, text in zip(headers, line.texts, strict=True)
        if text not in EMPTY
    ]
    return " | ".join(parts)[:1_000]
