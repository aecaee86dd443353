"""Views of a table derived from its cells: HTML, Markdown and typed columns.

In: `ParsedCell`s, each at its top-left position with its spans. Out: text that is safe to put in
a page (`html`), readable by people and models (`markdown`, which repeats nothing and drops spans),
and columns with numbers as floats (`typed_columns`, `columns_json` for the `tables` table).

Header rows are the leading rows whose cells are all `is_header`; all-header rows further down are
sub-headings and belong neither to the names nor to the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import Final, Literal, NamedTuple

from corpus.measures import NamedUnit, Quantity, convert, is_empty, parse_number, split_header
from corpus.parsed import ParsedCell

_JOINT: Final = " / "
_ENTITY: Final = re.compile(r"&(?=#?\w{1,32};)")
_MARKUP: Final = re.compile(r"[\\\]<&*`_~|]")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")


class Shape(NamedTuple):
    """Rows and columns, spans included."""

    n_rows: int
    n_cols: int


class TypedColumn(NamedTuple):
    """One column's body: floats or None for `number`, strings ("" when empty) for `text`."""

    name: str  # "" when the table has no header
    kind: Literal["number", "text"]
    unit: str
    values: tuple[float | str | None, ...]


def shape(cells: Sequence[ParsedCell]) -> Shape:
    """Size of the grid that `cells` cover."""
    return Shape(
        max((cell.row + cell.row_span for cell in cells), default=0),
        max((cell.col + cell.col_span for cell in cells), default=0),
    )


def grid(cells: Sequence[ParsedCell]) -> list[list[ParsedCell | None]]:
    """Every position's cell; a spanning cell stands at each position that it covers."""
    n_rows, n_cols = shape(cells)
    positions: list[list[ParsedCell | None]] = [[None] * n_cols for _ in range(n_rows)]
    for cell in cells:
        for row in positions[cell.row : cell.row + cell.row_span]:
            row[cell.col : cell.col + cell.col_span] = [cell] * cell.col_span
    return positions


def header_rows(cells: Sequence[ParsedCell]) -> int:
    """How many leading rows are header rows."""
    all_headers = _header_flags(cells)
    return next((i for i, is_header in enumerate(all_headers) if not is_header), len(all_headers))


def body_rows(cells: Sequence[ParsedCell]) -> tuple[int, ...]:
    """Row numbers of the body, in the order of a typed column's values."""
    return tuple(i for i, is_header in enumerate(_header_flags(cells)) if not is_header)


def html(cells: Sequence[ParsedCell]) -> str:
    """A `<table>` with spans, `<th>` for header cells, all text escaped."""
    n_header = header_rows(cells)
    # HTML clips a row span at the end of its row group, so a span across the border forbids it.
    crosses = any(cell.row < n_header < cell.row + cell.row_span for cell in cells)
    rows = _html_rows(cells)
    if crosses or not n_header:
        return f"<table><tbody>{''.join(rows)}</tbody></table>"
    head, body = "".join(rows[:n_header]), "".join(rows[n_header:])
    return f"<table><thead>{head}</thead>" + (
        f"<tbody>{body}</tbody></table>" if body else "</table>"
    )


def markdown(cells: Sequence[ParsedCell]) -> str:
    """A GitHub-style table: the text of a spanning cell stands at its top-left position only.

    Several header rows become one, joined per column; without a header the first line is empty.
    """
    n_rows, n_cols = shape(cells)
    if not n_cols:
        return ""
    texts = [[""] * n_cols for _ in range(n_rows)]
    for cell in cells:
        texts[cell.row][cell.col] = _markdown_text(cell.text)
    n_header = header_rows(cells)
    names = [_markdown_text(_JOINT.join(parts)) for parts in _names(cells, n_header)]
    lines = [names, ["---"] * n_cols, *texts[n_header:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def typed_columns(cells: Sequence[ParsedCell]) -> tuple[TypedColumn, ...]:
    """The body by columns. A column is `number` when each non-empty cell is one plain number.

    Prefixed units are brought to the first unit of the column (500 mV in a column of V is 0.5);
    units that do not agree, or a bare number between numbers with units, make the column text.
    A body cell over several columns counts in each if it is a number, else in its first alone.
    """
    body = body_rows(cells)
    positions = grid(cells)
    names = _names(cells, header_rows(cells))
    return tuple(
        _typed(parts, [_logical_text(positions[row][col], col) for row in body])
        for col, parts in enumerate(names)
    )


def columns_json(cells: Sequence[ParsedCell]) -> str:
    """`typed_columns` as the JSON of the `tables` table's column `columns_json`."""
    columns = [column._asdict() for column in typed_columns(cells)]
    return json.dumps(columns, ensure_ascii=False, allow_nan=False)


def _header_flags(cells: Sequence[ParsedCell]) -> list[bool]:
    seen = [False] * shape(cells).n_rows
    plain = list(seen)
    for cell in cells:
        for row in range(cell.row, cell.row + cell.row_span):
            seen[row] = True
            plain[row] = plain[row] or not cell.is_header
    return [has_cell and not has_plain for has_cell, has_plain in zip(seen, plain, strict=True)]


def _names(cells: Sequence[ParsedCell], n_header: int) -> list[list[str]]:
    """Per column, the distinct texts of its header cells from top to bottom."""
    parts: list[list[str]] = [[] for _ in range(shape(cells).n_cols)]
    for cell in sorted(cells, key=lambda cell: (cell.row, cell.col)):
        if cell.row >= n_header:
            continue
        text = " ".join(cell.text.split())
        for column in parts[cell.col : cell.col + cell.col_span]:
            if text and (not column or column[-1] != text):
                column.append(text)
    return parts


def _split_names(parts: list[str]) -> NamedUnit:
    """The joined name, and the unit that one of its parts states ("Limit (V)" over "Min")."""
    split = [split_header(part) for part in parts]
    units = {part.unit for part in split if part.unit}
    if len(units) == 1:
        return NamedUnit(_JOINT.join(part.name for part in split), units.pop())
    return NamedUnit(_JOINT.join(parts), "")


def _logical_text(cell: ParsedCell | None, col: int) -> str:
    if cell is None or (cell.col != col and parse_number(cell.text) is None):
        return ""
    return cell.text.strip()


def _typed(parts: list[str], texts: list[str]) -> TypedColumn:
    header = _split_names(parts)
    quantities = [None if is_empty(text) else parse_number(text) for text in texts]
    filled = [not is_empty(text) for text in texts]
    is_number = any(filled) and all(
        quantity is not None for quantity, full in zip(quantities, filled, strict=True) if full
    )
    values = _in_one_unit(header, quantities) if is_number else None
    if values is None:
        return TypedColumn(_JOINT.join(parts), "text", "", tuple(texts))
    return TypedColumn(header.name, "number", _unit(header, quantities), values)


def _unit(header: NamedUnit, quantities: list[Quantity | None]) -> str:
    written = [quantity.unit for quantity in quantities if quantity and quantity.unit]
    return header.unit or (written[0] if written else "")


def _in_one_unit(
    header: NamedUnit, quantities: list[Quantity | None]
) -> tuple[float | None, ...] | None:
    """All values in the column's unit, or None when they do not agree."""
    unit = _unit(header, quantities)
    values: list[float | None] = []
    for quantity in quantities:
        if quantity is None:
            values.append(None)
            continue
        value: Decimal | None = quantity.value
        if quantity.unit or not (header.unit or quantity.value == 0):
            value = convert(quantity, unit)
        if value is None:
            return None
        values.append(float(value))
    return tuple(values)


def _html_rows(cells: Sequence[ParsedCell]) -> list[str]:
    """One `<tr>` per row; positions that no cell covers get an empty cell to keep the columns."""
    rows: list[str] = []
    for row, line in enumerate(grid(cells)):
        written: list[str] = []
        for col, cell in enumerate(line):
            if cell is None:
                written.append("<td></td>")
            elif (cell.row, cell.col) == (row, col):
                written.append(_html_cell(cell))
        rows.append(f"<tr>{''.join(written)}</tr>")
    return rows


def _html_cell(cell: ParsedCell) -> str:
    tag = "th" if cell.is_header else "td"
    spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    spans += f' colspan="{cell.col_span}"' if cell.col_span > 1 else ""
    return f"<{tag}{spans}>{escape(cell.text.strip()).replace(chr(10), '<br>')}</{tag}>"


def _markdown_text(text: str) -> str:
    """One line in which only what Markdown would take for markup is escaped: `[7:0]` stays."""
    text = " ".join(text.split())
    if not _MARKUP.search(text):
        return text
    text = re.sub(r"\\(?=[!-/:-@\[-`{-~]|$)", r"\\\\", text)
    text = re.sub(r"\](?=[(\[:])", r"\]", text)
    text = _TAG.sub(r"\<", _ENTITY.sub("&amp;", text))
    for mark in "*`":
        if text.count(mark) > 1:
            text = text.replace(mark, "\\" + mark)
    if text.count("_") > 1:
        # Underscores inside a word are no emphasis, and most identifiers have them.
        text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\_", text)
    return text.replace("~~", r"\~~").replace("|", r"\|")
