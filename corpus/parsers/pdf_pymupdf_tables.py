"""Tables of a PDF page through PyMuPDF: where to look, and its grids turned into cells with spans.

Three depths, `ParseOptions.table_detection`:
fast: ruling lines alone (0.03 s a page); finds no table without rules, and its grids have no
headers, so that the first row is taken as one when it holds no number.
routed: the layout model with grid refinement (0.4-0.8 s) on pages that show signs of a table.
full: the same on every page.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from corpus.parsed import Box, ParsedCell
from corpus.parsers.boxes import enclose
from corpus.parsers.pdf_raw import RawBlock, RawLine, RawTable
from corpus.parsers.ruled_grids import may_hold_grid
from corpus.parsers.table_grid import Rule, Word
from corpus.parsers.table_mending import mend

_CAPTION: Final = re.compile(r"^table\s+[\dA-Z]", re.IGNORECASE)
_NUMBER: Final = re.compile(r"^[\s\d.,+\-−%xX()/]+$")
_VALUE: Final = re.compile(r"(?!\()(?=.*\d).{1,12}")
_LEADER: Final = re.compile(r"[._…·](?:\s?[._…·]){3,}\s*$")
MIN_VALUE_ROWS: Final = 5
# Rules drawn as thin boxes leave slivers between their two edges.
SLIVER_PT: Final = 6.0
MAX_RULE_PT: Final = 3.0


class FoundTables(NamedTuple):
    tables: tuple[RawTable, ...]
    flags: tuple[str, ...] = ()


def find_tables(
    page: Any, blocks: Sequence[RawBlock], mode: str, drawings: Sequence[dict[str, Any]]
) -> FoundTables:
    """Tables of `page` in points of the page as shown; `drawings` are its vector paths."""
    tabular = mode == "full" or (mode == "routed" and _looks_tabular(blocks))
    if not tabular and not may_hold_grid(drawings):
        return FoundTables(())
    # Before the search, which rewrites a rotated page.
    seen = (_words(page), _rules(page, drawings)) if page.rotation else None
    found = find_with_layout(page) if tabular else _find_ruled(page, mode)
    if not found.tables:
        return found
    words, rules = seen or (_words(page), _rules(page, drawings))
    return found._replace(tables=tuple(_mended(table, words, rules) for table in found.tables))


def _find_ruled(page: Any, mode: str) -> FoundTables:
    ruled = page.find_tables(use_layout=False)
    if ruled is None:
        return FoundTables((), ("table_error",))
    found = [table for item in ruled.tables if (table := _from_rules(item))]
    if found and mode == "routed":
        return find_with_layout(page)
    return FoundTables(tuple(found))


def _words(page: Any) -> list[Word]:
    import pymupdf

    matrix = page.rotation_matrix
    return [
        Word(str(item[4]), to_box(pymupdf.Rect(item[:4]) * matrix))
        for item in page.get_text("words", sort=False)
    ]


def _rules(page: Any, drawings: Sequence[dict[str, Any]]) -> list[Rule]:
    """Horizontal lines of the page as shown; some are drawn as thin boxes."""
    import pymupdf

    matrix = page.rotation_matrix
    found = []
    for path in drawings:
        for item in path["items"]:
            if item[0] == "l":
                box = pymupdf.Rect(*item[1], *item[2]).normalize() * matrix
            elif item[0] == "re":
                box = pymupdf.Rect(item[1]) * matrix
            else:
                continue
            if box.y1 - box.y0 <= MAX_RULE_PT < box.x1 - box.x0:
                found.append(Rule(float(box.x0), float(box.x1), float(box.y0 + box.y1) / 2))
    return found


def _mended(table: RawTable, words: Sequence[Word], rules: Sequence[Rule]) -> RawTable:
    cells = mend(table.cells, words, rules)
    boxes = [cell.bbox_pt for cell in cells if cell.bbox_pt]
    return RawTable(enclose(boxes) if boxes else table.box, cells)


def find_with_layout(page: Any) -> FoundTables:
    """Tables that MuPDF's layout model and its refinement find."""
    _leave_out_pictures(page)
    finder = page.find_tables(union=True, refine=True)
    if finder is None:
        return FoundTables((), ("table_error",))
    found = (_from_placements(item) for item in finder.tables)
    return FoundTables(tuple(table for table in found if table))


def _leave_out_pictures(page: Any) -> None:
    """Make this page's text calls skip pictures unless asked for them.

    The refinement takes the text of a page several times with the default flags, which decode
    every picture on it each time (1 s instead of 0.1 s a page), and then looks at text alone.
    """
    import pymupdf

    get_text = page.get_text
    plain = {
        "dict": pymupdf.TEXTFLAGS_DICT & ~pymupdf.TEXT_PRESERVE_IMAGES,
        "rawdict": pymupdf.TEXTFLAGS_RAWDICT & ~pymupdf.TEXT_PRESERVE_IMAGES,
    }

    def get_text_alone(option: str = "text", **settings: Any) -> Any:
        if option in plain and settings.get("textpage") is None:
            settings.setdefault("flags", plain[option])
        return get_text(option, **settings)

    page.get_text = get_text_alone


def _looks_tabular(blocks: Sequence[RawBlock]) -> bool:
    """A caption, three rows of at least three separate pieces, or a list of names and values."""
    lines = [line for block in blocks for line in block.lines if line.upright]
    if any(_CAPTION.match(line.text) for line in lines):
        return True
    if has_rows_of_pieces(lines):
        return True
    rows = (_pieces(row) for row in _rows_by_baseline(lines))
    return sum(1 for pieces in rows if _is_name_and_value(pieces)) >= MIN_VALUE_ROWS


def has_rows_of_pieces(lines: Iterable[RawLine]) -> bool:
    """Three rows of at least three separate pieces of text."""
    return sum(1 for row in _rows_by_baseline(lines) if len(_pieces(row)) >= 3) >= 3


def _is_name_and_value(pieces: list[list[RawLine]]) -> bool:
    """Two pieces, the second a short value; no line of a contents page, no numbered equation."""
    if len(pieces) != 2:
        return False
    name, value = pieces[0][-1].text, pieces[1][0].text
    return bool(_VALUE.fullmatch(value)) and not _LEADER.search(name)


def _rows_by_baseline(lines: Iterable[RawLine]) -> Iterable[list[RawLine]]:
    row: list[RawLine] = []
    for line in sorted(lines, key=lambda line: line.box.y1):
        if row and line.box.y1 - row[0].box.y1 > 2.0:
            yield row
            row = []
        row.append(line)
    if row:
        yield row


def _pieces(row: list[RawLine]) -> list[list[RawLine]]:
    """Pieces with a clear gap before them; the words of one line are one piece."""
    ordered = sorted(row, key=lambda line: line.box.x0)
    pieces = [ordered[:1]]
    for left, right in itertools.pairwise(ordered):
        if right.box.x0 - left.box.x1 > 1.2 * left.size:
            pieces.append([])
        pieces[-1].append(right)
    return pieces


def _from_placements(table: Any) -> RawTable | None:
    if table.placements is None:
        return _from_rules(table)
    cells: list[ParsedCell] = []
    taken: set[tuple[int, int]] = set()
    for row, placements in enumerate(table.placements):
        col = 0
        for placed in placements:
            while (row, col) in taken:
                col += 1
            taken.update(
                (row + down, col + right)
                for down in range(placed.rowspan)
                for right in range(placed.colspan)
            )
            cells.append(
                ParsedCell(
                    row=row,
                    col=col,
                    text=" ".join(placed.text.split()),
                    row_span=placed.rowspan,
                    col_span=placed.colspan,
                    is_header=placed.tag == "th",
                    bbox_pt=to_box(placed.bbox) if placed.bbox else None,
                )
            )
            col += placed.colspan
    return _checked(to_box(table.bbox), cells)


def _from_rules(table: Any) -> RawTable | None:
    """Cells from a grid of ruling lines; slivers between doubled rules are dropped."""
    texts = table.extract()
    placed: list[tuple[Box, str]] = []
    for row, row_texts in zip(table.rows, texts, strict=True):
        for rectangle, text in zip(row.cells, row_texts, strict=True):
            if rectangle is None:
                continue
            box, words = to_box(rectangle), " ".join((text or "").split())
            if words or (box.x1 - box.x0 > SLIVER_PT and box.y1 - box.y0 > SLIVER_PT):
                placed.append((box, words))
    if not placed:
        return None
    columns = _starts(box.x0 for box, _ in placed)
    rows = _starts(box.y0 for box, _ in placed)
    cells: dict[tuple[int, int], ParsedCell] = {}
    for box, words in placed:
        row, row_span = _slots(rows, box.y0, box.y1)
        col, col_span = _slots(columns, box.x0, box.x1)
        cells.setdefault((row, col), ParsedCell(row, col, words, row_span, col_span, bbox_pt=box))
    return _checked(enclose(box for box, _ in placed), _mark_header(list(cells.values())))


def _starts(edges: Iterable[float]) -> list[float]:
    """Left (or top) edges, those closer than a sliver taken as one."""
    starts: list[float] = []
    for edge in sorted(edges):
        if not starts or edge - starts[-1] > SLIVER_PT:
            starts.append(edge)
    return starts


def _slots(starts: list[float], low: float, high: float) -> tuple[int, int]:
    """First slot and number of slots that `low`..`high` covers."""
    first = max(i for i, start in enumerate(starts) if start <= low + 0.1)
    inside = sum(1 for start in starts[first + 1 :] if start < high - SLIVER_PT)
    return first, 1 + inside


def _mark_header(cells: list[ParsedCell]) -> list[ParsedCell]:
    """The first row, unless it is empty somewhere or holds a number."""
    first = [cell for cell in cells if cell.row == 0]
    if not all(cell.text and not _NUMBER.match(cell.text) for cell in first):
        return cells
    return [
        ParsedCell(cell.row, cell.col, cell.text, cell.row_span, cell.col_span, True, cell.bbox_pt)
        if cell.row == 0
        else cell
        for cell in cells
    ]


def _checked(box: Box, cells: list[ParsedCell]) -> RawTable | None:
    """None for what is no table: a framed note, a lone row, an empty grid."""
    rows = {cell.row for cell in cells if cell.text}
    columns = {cell.col for cell in cells if cell.text}
    filled = sum(1 for cell in cells if cell.text)
    if len(rows) < 2 or len(columns) < 2 or filled < 3:
        return None
    return RawTable(box, tuple(cells))


def to_box(rectangle: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (round(float(value), 2) for value in rectangle)
    return Box(x0, y0, x1, y1)
