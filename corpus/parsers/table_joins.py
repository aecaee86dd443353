"""Tables that continue on the next page -> one table.

In: for each page, in order, the tables that may continue one from the page before or into the page
after (`TablePart`: nothing but notes stands between the table and that edge of the flow). Out:
runs of parts that are one table, and the table that they make: the repeated header once, each cell
with the page that it stands on, a row that was cut by the break made whole where the text says so.

A part continues the one before it when their columns agree and one of these holds: the caption
says so or repeats the number; the header is repeated; or there is no caption of its own and its
first row looks like the body of the first part, which reaches far down its page. Does not join
tables side by side on a page, nor columns that were split over facing pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, NamedTuple

from corpus import table_views
from corpus.measures import is_empty, parse_number
from corpus.parsed import Box, ParsedCell
from corpus.parsers.table_rows import OPEN_END

# Facing pages have their margins the other way round.
MAX_SHIFT_PT: Final = 80.0
# Share of the narrower column that must lie under the other.
MIN_COLUMN_OVERLAP: Final = 0.5
# Where a part without caption or header must start and where the one before it must end.
UPPER_SHARE: Final = 0.35
LOWER_SHARE: Final = 0.6
MAX_HEADER_ROWS: Final = 4

_LABEL: Final = re.compile(
    r"^\s*(?:table|tab\.|tabelle|tableau|表)\s*([A-Z]?[-.]?\d+(?:[-.–]\d+)*|[IVXLC]+)",
    re.IGNORECASE,
)
_CONTINUED: Final = re.compile(
    r"[(\[—–-]?\s*\b(?:cont(?:inued|inuation|['’.]?d)?|fortsetzung|suite)\b\.?\s*[)\]]?|[（(]?续表?[)）]?",
    re.IGNORECASE,
)
_CLOSED_END: Final = re.compile(r"[.:;!?][\])'\"”]*$")


@dataclass(frozen=True)
class TablePart:
    """A table on one page and its surroundings; `bold_rows` are rows printed in bold throughout."""

    page: int
    height_pt: float
    box: Box
    cells: tuple[ParsedCell, ...]
    caption: str = ""
    caption_below: bool = False
    at_top: bool = False  # nothing but notes above it on its page
    at_bottom: bool = False  # nothing but notes below it
    bold_rows: frozenset[int] = frozenset()


class JoinedTable(NamedTuple):
    """`parts` are positions in the given sequence, the first of which gives box and place."""

    parts: tuple[int, ...]
    cells: tuple[ParsedCell, ...]
    caption: str
    pages: tuple[int, ...]


def join_parts(parts: Sequence[TablePart]) -> list[JoinedTable]:
    """Each part in exactly one table. `parts` are sorted by page and place on it."""
    joined: list[JoinedTable] = []
    for number, part in enumerate(parts):
        cells = tuple(replace(cell, page=part.page) for cell in part.cells)
        own = JoinedTable((number,), cells, part.caption, (part.page,))
        before = joined[-1] if joined else None
        made = _continued(before, parts, part, own) if before else None
        if made is None:
            joined.append(own)
        else:
            joined[-1] = made
    return joined


def _continued(
    before: JoinedTable, parts: Sequence[TablePart], part: TablePart, own: JoinedTable
) -> JoinedTable | None:
    last = parts[before.parts[-1]]
    if part.page != last.page + 1 or not part.at_top:
        return None
    said = _caption_verdict(before.caption, last, part)
    # A caption that says so is stronger than text below the first part: that is a note to it.
    if said is False or not (said or last.at_bottom):
        return None
    places = _places(before, own, last.page, bool(said))
    if places is None:
        return None
    first_cells, cells = _place(before.cells, places.first), _place(own.cells, places.second)
    repeated = repeated_header(first_cells, cells)
    if not (said or repeated or _goes_on(first_cells, cells, parts[before.parts[0]], last, part)):
        return None
    return JoinedTable(
        (*before.parts, *own.parts),
        append_rows(first_cells, cells, repeated),
        before.caption or part.caption,
        (*before.pages, part.page),
    )


def _places(before: JoinedTable, own: JoinedTable, page: int, said: bool) -> Places | None:
    n_cols = table_views.shape(before.cells).n_cols
    last_rows = [cell for cell in before.cells if cell.page == page]
    if table_views.shape(last_rows).n_cols != n_cols:  # its last columns were empty on that page
        last_rows = list(before.cells)
    places = match_columns(last_rows, own.cells)
    if places is not None or n_cols != table_views.shape(own.cells).n_cols:
        return places
    # Columns without rules are as wide as their text, which differs from page to page.
    if said or repeated_header(before.cells, own.cells):
        return Places(tuple(range(n_cols)), tuple(range(n_cols)))
    return None


def is_continuation(caption: str) -> bool:
    """Whether the caption says that the table began before."""
    return bool(_CONTINUED.search(caption))


def _caption_verdict(caption: str, last: TablePart, part: TablePart) -> bool | None:
    """True: the captions say that it goes on. False: that it does not. None: they do not say."""
    if last.caption and last.caption_below and not is_continuation(last.caption):
        return False  # a caption below a table ends it
    if not part.caption:
        return None
    if is_continuation(part.caption) and _label(part.caption) in ("", _label(caption)):
        return True
    if _label(part.caption) and _label(part.caption) == _label(caption):
        return True
    return None if part.caption_below and not caption else False


def _label(caption: str) -> str:
    match = _LABEL.match(caption)
    return match[1].upper() if match else ""


class Places(NamedTuple):
    """New column of each old column, for the rows so far and for the rows that follow."""

    first: tuple[int, ...]
    second: tuple[int, ...]


def match_columns(first: Sequence[ParsedCell], second: Sequence[ParsedCell]) -> Places | None:
    """The columns of the two, brought together by where they stand; None when they disagree.

    One of the two may lack columns that the other has (they were empty on its page).
    """
    n_first, n_second = table_views.shape(first).n_cols, table_views.shape(second).n_cols
    upper, lower = _extents(first, n_first), _extents(second, n_second)
    if upper is None or lower is None:
        same = tuple(range(n_first))
        return Places(same, same) if n_first == n_second else None
    if n_second <= n_first:
        found = _inject(lower, upper)
        return Places(tuple(range(n_first)), found) if found else None
    found = _inject(upper, lower)
    return Places(found, tuple(range(n_second))) if found else None


_Extent = tuple[float, float]


def _extents(cells: Sequence[ParsedCell], n_cols: int) -> list[_Extent] | None:
    """Left and right edge of each column, from the cells that lie in it alone."""
    found: list[_Extent] = []
    for col in range(n_cols):
        boxes = [c.bbox_pt for c in cells if c.col == col and c.col_span == 1 and c.bbox_pt]
        if not boxes:
            return None
        found.append((median(box.x0 for box in boxes), median(box.x1 for box in boxes)))
    return found


def _inject(few: Sequence[_Extent], many: Sequence[_Extent]) -> tuple[int, ...] | None:
    """For each of `few` its column among `many`, in order; None when one has no counterpart."""
    shifts = (0.0, many[0][0] - few[0][0], many[-1][1] - few[-1][1])
    for shift in shifts:
        if abs(shift) > MAX_SHIFT_PT:
            continue
        chosen = [
            max(range(len(many)), key=lambda i: _share(low + shift, high + shift, many[i]))
            for low, high in few
        ]
        fits = all(
            _share(low + shift, high + shift, many[i]) >= MIN_COLUMN_OVERLAP
            for (low, high), i in zip(few, chosen, strict=True)
        )
        if fits and chosen == sorted(set(chosen)):
            return tuple(chosen)
    return None


def _share(low: float, high: float, other: _Extent) -> float:
    """Shared width over the wider of the two, so that a column does not match a group of them."""
    shared = min(high, other[1]) - max(low, other[0])
    wider = max(high - low, other[1] - other[0])
    return shared / wider if wider > 0 else 0.0


def _place(cells: Sequence[ParsedCell], places: Sequence[int]) -> tuple[ParsedCell, ...]:
    placed = []
    for cell in cells:
        last = places[cell.col + cell.col_span - 1]
        col = places[cell.col]
        placed.append(replace(cell, col=col, col_span=last - col + 1))
    return tuple(placed)


def repeated_header(first: Sequence[ParsedCell], second: Sequence[ParsedCell]) -> int:
    """How many leading rows of `second` say the same as the header of `first`.

    Texts are compared whatever their rows: a detector may read one header in one row or two.
    """
    upper, lower = _row_texts(first), _row_texts(second)
    n_header = max(table_views.header_rows(first), 1)
    wanted = _flat(upper[:n_header])
    for depth in range(min(MAX_HEADER_ROWS, len(lower) - 1), 0, -1):
        texts = _flat(lower[:depth])
        same = texts == wanted or (depth <= n_header and texts == _flat(upper[:depth]))
        if len(texts) >= 2 and same:
            return depth
    return 0


def _flat(rows: Sequence[dict[int, str]]) -> list[str]:
    return sorted(text for row in rows for text in row.values())


def _row_texts(cells: Sequence[ParsedCell]) -> list[dict[int, str]]:
    rows: list[dict[int, str]] = [{} for _ in range(table_views.shape(cells).n_rows)]
    for cell in cells:
        text = "".join(_CONTINUED.sub("", cell.text).split()).lower()
        if text:
            rows[cell.row][cell.col] = text
    return rows


def _goes_on(
    first: Sequence[ParsedCell],
    second: Sequence[ParsedCell],
    opening: TablePart,
    last: TablePart,
    part: TablePart,
) -> bool:
    """Whether the first row of a part without caption and repeated header is one more body row."""
    if last.box.y1 < LOWER_SHARE * last.height_pt or part.box.y0 > UPPER_SHARE * part.height_pt:
        return False
    row = [cell for cell in second if cell.row == 0 and cell.text]
    if not row:
        return True
    header_is_bold = 0 in opening.bold_rows and len(opening.bold_rows) < _n_rows(opening.cells)
    if header_is_bold:
        return 0 not in part.bold_rows or len(row) == 1
    numeric = _numeric_columns(first)
    values = [parse_number(cell.text) is not None for cell in row if cell.col in numeric]
    if values:
        return 2 * sum(values) >= len(values)
    # Nothing tells a header from a body: then a header would have stood out in the first part too.
    return 0 not in part.bold_rows


def _n_rows(cells: Sequence[ParsedCell]) -> int:
    return table_views.shape(cells).n_rows


def _numeric_columns(cells: Sequence[ParsedCell]) -> set[int]:
    found: dict[int, list[bool]] = {}
    n_header = table_views.header_rows(cells)
    for cell in cells:
        if cell.row >= n_header and cell.col_span == 1 and not is_empty(cell.text):
            found.setdefault(cell.col, []).append(parse_number(cell.text) is not None)
    return {col for col, flags in found.items() if sum(flags) >= 0.7 * len(flags)}


def append_rows(
    first: Sequence[ParsedCell], second: Sequence[ParsedCell], n_repeated: int
) -> tuple[ParsedCell, ...]:
    """The rows of `second` after those of `first`, less its repeated header rows."""
    n_rows = _n_rows(first)
    marked = _with_header(first, n_repeated)
    added = []
    for cell in second:
        low = max(cell.row, n_repeated)
        span = cell.row + cell.row_span - low
        if span <= 0:
            continue
        # A detector takes the first row of every part for a header.
        is_header = cell.is_header and (n_repeated > 0 or _is_section(cell, second))
        row = low - n_repeated + n_rows
        added.append(replace(cell, row=row, row_span=span, is_header=is_header))
    return _mend_cut_row(marked, added, n_rows)


def _with_header(cells: Sequence[ParsedCell], n_repeated: int) -> tuple[ParsedCell, ...]:
    """Rows that are repeated on the next page are a header, whatever the detector thought."""
    return tuple(
        replace(cell, is_header=True) if cell.row + cell.row_span <= n_repeated else cell
        for cell in cells
    )


def _is_section(cell: ParsedCell, cells: Sequence[ParsedCell]) -> bool:
    """A sub-heading inside the body: alone in its row, and not the first."""
    return cell.row > 0 and sum(1 for c in cells if c.row == cell.row and c.text) == 1


def _mend_cut_row(
    first: Sequence[ParsedCell], added: Sequence[ParsedCell], border: int
) -> tuple[ParsedCell, ...]:
    above = {c.col: c for c in first if c.row + c.row_span == border}
    below = [c for c in added if c.row == border]
    if not _is_cut(above, [c for c in below if c.text]) or any(c.row_span > 1 for c in below):
        return (*first, *added)
    rest = {c.col: c.text for c in below if c.text}
    whole = [
        replace(c, text=f"{c.text} {rest[c.col]}")
        if c.row + c.row_span == border and c.col in rest
        else c
        for c in first
    ]
    return (*whole, *(replace(c, row=c.row - 1) for c in added if c.row > border))


def _is_cut(above: dict[int, ParsedCell], below: Sequence[ParsedCell]) -> bool:
    """Whether the row `below` the break is the rest of the row `above` it.

    Its first column is empty, it has text only below text, and that text goes on in mid-sentence.
    """
    if not below or min(cell.col for cell in below) == 0:
        return False
    pairs = [(above[c.col], c) for c in below if c.col in above and above[c.col].text]
    if len(pairs) < len(below) or any(u.is_header or u.col_span != c.col_span for u, c in pairs):
        return False
    if any(parse_number(c.text) is not None for _, c in pairs):
        return False
    return any(_runs_on(upper.text.strip(), lower.text.strip()) for upper, lower in pairs)


def _runs_on(upper: str, lower: str) -> bool:
    if len(upper) < 2 or _CLOSED_END.search(upper):
        return False
    return lower[:1].islower() or bool(OPEN_END.search(upper))
