"""The header of a mended table: how deep it is, and which of its cells span columns or rows.

A detector cuts a header along the columns of the body. Here the pieces of one line of text become
one cell again; a name that stands over several columns spans them where a rule below it or its
place in their middle says so; a name with nothing above or below it spans the rows of the header;
lines of one name become one cell.
"""

from __future__ import annotations

from typing import Final

from corpus.measures import is_empty, parse_number
from corpus.parsers.table_grid import LEADING, SPACE, Grid, Rule, Slot

MAX_DEPTH: Final = 6
# A name counts as centred when it is off by no more than this, in heights of its words.
OFF_CENTRE: Final = 0.8


def mend_header(grid: Grid, depth: int) -> int:
    """Find the spans of the first `depth` rows and mark them; returns how many rows are left."""
    if depth:
        for row in range(depth - 1):
            _rejoin_lines(grid, row)
        for row in range(depth - 1):
            for slot in grid.filled(row):
                _span_columns(grid, slot, depth)
        _stack_lines(grid, depth)
        _span_rows(grid, depth)
        depth -= _collapse(grid, depth)
        for slot in grid.slots:
            slot.is_header = slot.row < depth or (slot.is_header and _is_section(grid, slot, depth))
    for row in range(depth, grid.n_rows):
        _span_section(grid, row, depth)
    return depth


def drop_title(grid: Grid) -> None:
    """A lone text above the rule that opens the table is not part of it."""
    edges = grid.row_edges(0)
    first = grid.filled(0)
    if edges is None or grid.n_rows < 4 or len(_runs(grid, first)) != 1:
        return
    below = grid.row_edges(1)
    if below is None:
        return
    opening = [r for r in grid.rules_between(edges[1], below[0]) if grid.is_full(r)]
    above = [r for r in grid.rules if r.y < edges[0] + 1]
    if opening and not above and any(not grid.is_full(r) for r in _rules_below(grid, opening[0])):
        grid.slots = [slot for slot in grid.slots if slot.last_row > 0]
        for slot in grid.slots:
            if slot.row == 0:
                slot.row, slot.row_span = 1, slot.row_span - 1
            slot.row -= 1


def _rules_below(grid: Grid, rule: Rule) -> list[Rule]:
    return [r for r in grid.rules if rule.y < r.y < rule.y + 4 * grid.height]


def header_depth(grid: Grid) -> int:
    """Rows above the first rule across the whole table, else the rows that the detector marked."""
    marked = _marked(grid)
    for row in range(min(MAX_DEPTH, grid.n_rows - 1)):
        edges, below = grid.row_edges(row), _next_edges(grid, row)
        if edges is None or below is None:
            continue
        if any(grid.is_full(rule) for rule in grid.rules_between(edges[1], below[0])):
            return row + 1 if marked or _has_partial(grid, row) else 0
        if _is_body(grid, row) and not _has_partial_below(grid, row):
            return min(marked, row)
    return min(marked, grid.n_rows - 1)


def _marked(grid: Grid) -> int:
    for row in range(grid.n_rows):
        filled = grid.filled(row)
        if filled and not all(slot.is_header for slot in filled):
            return row
    return 0


def _next_edges(grid: Grid, row: int) -> tuple[float, float] | None:
    later = (grid.row_edges(r) for r in range(row + 1, grid.n_rows))
    return next((edges for edges in later if edges), None)


def _has_partial(grid: Grid, row: int) -> bool:
    edges = grid.row_edges(row)
    return edges is not None and any(
        not grid.is_full(r) for r in grid.rules if r.y < edges[1] and r.y > grid.box.y0 - 2
    )


def _has_partial_below(grid: Grid, row: int) -> bool:
    edges, below = grid.row_edges(row), _next_edges(grid, row)
    return edges is not None and below is not None and bool(grid.rules_between(edges[1], below[0]))


def _is_body(grid: Grid, row: int) -> bool:
    """Most of the row after its first cell are numbers other than years."""
    values = [slot.text for slot in grid.filled(row) if slot.col > 0 and not is_empty(slot.text)]
    numbers = [text for text in values if parse_number(text) is not None and not _is_year(text)]
    return len(values) >= 2 and 2 * len(numbers) > len(values)


def _is_year(text: str) -> bool:
    return text.isdigit() and 1800 <= int(text) <= 2100


def _runs(grid: Grid, slots: list[Slot]) -> list[list[Slot]]:
    """Slots of a row, those together between which a line of text runs on."""
    runs: list[list[Slot]] = []
    for slot in slots:
        if runs and _runs_on(grid, runs[-1][-1], slot):
            runs[-1].append(slot)
        else:
            runs.append([slot])
    return runs


def _runs_on(grid: Grid, left: Slot, right: Slot) -> bool:
    if right.col != left.last_col + 1 or left.row != right.row:
        return False
    for word in left.words:
        for other in right.words:
            same_line = abs(word.box.y0 - other.box.y0) < 0.3 * word.height
            if same_line and -1.0 <= other.box.x0 - word.box.x1 < SPACE * word.height:
                return True
    return False


def _rejoin_lines(grid: Grid, row: int) -> None:
    for run in _runs(grid, grid.filled(row)):
        first, rest = run[0], run[1:]
        if rest and any(grid.filled(r) for r in range(row + 1, grid.n_rows)):
            for slot in rest:
                first.take(slot)
            grid.slots = [slot for slot in grid.slots if slot not in rest]


def _span_columns(grid: Grid, slot: Slot, depth: int) -> None:
    """Widen `slot` over free places beside it, to the rule below it or around its middle."""
    if not slot.words or slot.row_span > 1:
        return
    low, high = slot.col, slot.last_col
    while low > 0 and grid.is_free(slot.row, low - 1):
        low -= 1
    while high + 1 < grid.n_cols and grid.is_free(slot.row, high + 1):
        high += 1
    edges = grid.column_edges()
    text = (min(w.box.x0 for w in slot.words), max(w.box.x1 for w in slot.words))
    found = _by_rule(grid, slot, edges, low, high)
    if found is None and (low < slot.col or high > slot.last_col):
        found = _by_centre(grid, slot, edges, text, low, high, depth)
    if found:
        slot.col, slot.col_span = found[0], found[1] - found[0] + 1
        columns = range(found[0], found[1] + 1)
        grid.clear(range(slot.row, slot.row + 1), columns, slot)


Range = tuple[int, int]


def _middle(slot: Slot) -> float:
    """Middle of the slot's text, or of its place."""
    boxes = [word.box for word in slot.words] or ([slot.box] if slot.box else [])
    return (min(b.x0 for b in boxes) + max(b.x1 for b in boxes)) / 2 if boxes else -1.0


def _by_rule(
    grid: Grid, slot: Slot, edges: list[tuple[float, float]], low: int, high: int
) -> Range | None:
    below = _next_edges(grid, slot.row)
    if below is None:
        return None
    x = _middle(slot)
    for rule in grid.rules_between(slot.bottom, below[0]):
        if grid.is_full(rule) or not rule.x0 <= x <= rule.x1:
            continue
        others = (other for other in grid.filled(slot.row) if other is not slot)
        if any(rule.x0 <= _middle(other) <= rule.x1 for other in others):
            continue  # it runs below several names and tells nothing of each
        columns = [
            col
            for col in range(low, high + 1)
            if rule.x0 - 2 <= (edges[col][0] + edges[col][1]) / 2 <= rule.x1 + 2
        ]
        if columns and columns[0] <= slot.col and columns[-1] >= slot.last_col:
            return columns[0], columns[-1]
    return None


def _by_centre(
    grid: Grid,
    slot: Slot,
    edges: list[tuple[float, float]],
    text: tuple[float, float],
    low: int,
    high: int,
    depth: int,
) -> Range | None:
    """The range whose middle is the text's; None when the text is in the middle of its own."""
    middle = (text[0] + text[1]) / 2
    limit = OFF_CENTRE * slot.words[0].height

    def off(span: Range) -> float:
        return abs((edges[span[0]][0] + edges[span[1]][1]) / 2 - middle)

    if slot.col_span == 1 and off((slot.col, slot.col)) <= limit:
        return None
    ranges = [
        (first, last)
        for first in range(max(low, 1), slot.col + 1)
        for last in range(slot.last_col, high + 1)
        if last > first
        and edges[first][0] <= text[0] + limit
        and edges[last][1] >= text[1] - limit
        and all(_has_leaf(grid, slot.row + 1, col, depth) for col in range(first, last + 1))
    ]
    best = min(ranges, key=lambda span: (round(off(span) / limit), span[0] - span[1]), default=None)
    return best if best and off(best) <= limit else None


def _has_leaf(grid: Grid, row: int, col: int, depth: int) -> bool:
    return any(not grid.is_free(r, col) for r in range(row, depth))


def _stack_lines(grid: Grid, depth: int) -> None:
    """Make lines of one name that stand in rows above one another one cell."""
    for row in range(depth - 1, 0, -1):
        for slot in grid.filled(row):
            upper = grid.at(row - 1, slot.col)
            if upper is None or upper is slot or not upper.text or not upper.words:
                continue
            if (upper.col, upper.col_span) != (slot.col, slot.col_span) or not slot.words:
                continue
            close = slot.top - upper.bottom < LEADING * grid.height
            if close and not _is_ruled_off(grid, upper.bottom, slot.top, upper):
                upper.take(slot)
                grid.slots.remove(slot)


def _is_ruled_off(grid: Grid, top: float, bottom: float, slot: Slot) -> bool:
    x = _middle(slot)
    return any(rule.x0 <= x <= rule.x1 for rule in grid.rules_between(top, bottom))


def _span_rows(grid: Grid, depth: int) -> None:
    """Give each header cell the free places above and below it."""
    ordered = sorted(grid.slots, key=lambda slot: (-slot.row, slot.col))
    for slot in [s for s in ordered if s.text and s.row < depth]:
        columns = range(slot.col, slot.last_col + 1)
        low, high = slot.row, min(slot.last_row, depth - 1)
        while low > 0 and all(_may_take(grid, slot, low - 1, col) for col in columns):
            low -= 1
        while high + 1 < depth and all(_may_take(grid, slot, high + 1, col) for col in columns):
            high += 1
        slot.row, slot.row_span = low, high - low + 1
        grid.clear(range(low, high + 1), columns, slot)


def _may_take(grid: Grid, slot: Slot, row: int, col: int) -> bool:
    if not grid.is_free(row, col):
        return False
    edges = grid.row_edges(row)
    if edges is None or not slot.words:
        return True
    gap = (edges[1], slot.top) if row < slot.row else (slot.bottom, edges[0])
    return not _is_ruled_off(grid, *gap, slot)


def _collapse(grid: Grid, depth: int) -> int:
    """Drop header rows in which nothing ends: all their cells go on in the next."""
    dropped = 0
    for row in range(depth - 2, -1, -1):
        here = [grid.at(row, col) for col in range(grid.n_cols)]
        if all(slot is None or slot.last_row > row or not slot.text for slot in here):
            grid.slots = [s for s in grid.slots if s.text or s.last_row != row or s.row != row]
            grid.drop_row(row)
            dropped += 1
    return dropped


def _is_section(grid: Grid, slot: Slot, depth: int) -> bool:
    return slot.row > depth and len(grid.filled(slot.row)) == 1


def _span_section(grid: Grid, row: int, depth: int) -> None:
    """A line of text in the middle of the columns after the first heads the rows below it."""
    filled = grid.filled(row)
    if not filled or filled[0].col == 0 or len(_runs(grid, filled)) != 1:
        return
    if grid.n_cols < 3 or any(parse_number(slot.text) is not None for slot in filled):
        return
    words = [word for slot in filled for word in slot.words]
    if not words or any(slot.row_span > 1 for slot in filled):
        return
    edges = grid.column_edges(depth)
    middle = (min(w.box.x0 for w in words) + max(w.box.x1 for w in words)) / 2
    last = grid.n_cols - 1
    if abs((edges[1][0] + edges[last][1]) / 2 - middle) > 2 * OFF_CENTRE * grid.height:
        return
    if len(filled) == 1 and not grid.is_free(row, 0):
        return
    first = filled[0]
    for slot in filled[1:]:
        first.take(slot)
    grid.slots = [slot for slot in grid.slots if slot not in filled[1:]]
    if first.col_span == 1 and last > 2 and len(first.words) == 1:
        return
    first.col, first.col_span = 1, last
    grid.clear(range(row, row + 1), range(1, last + 1), first)
