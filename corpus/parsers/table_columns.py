"""Columns of a mended table that a detector did not tell apart, or cut in two.

Two columns read as one show a channel without ink through all their rows; it is a border when it
is wide, or when values stand on both its sides or on its right. A column with nothing in the body,
over which a name of the header runs on from the column before it, is no column.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from corpus.measures import is_empty, parse_number
from corpus.parsers.table_grid import SPACE, Grid, Slot, Word, lines_of, words_text

MIN_LINES: Final = 4
TWO_SIDED: Final = 0.8  # of the lines
# Widths in heights of a word: a space between words is about 0.25.
BETWEEN_VALUES: Final = 0.28
WIDE: Final = 1.2
_BELONGS_TO_VALUE: Final = re.compile(r"^(?:[(\[±+/×x–-]|[%°*†‡§]+$|[a-zµ]{1,3}$)")


class Channel(NamedTuple):
    x0: float
    x1: float

    @property
    def middle(self) -> float:
        return (self.x0 + self.x1) / 2


def split_columns(grid: Grid, depth: int) -> None:
    """Split columns at their channels; `depth` rows are the header."""
    for col in range(grid.n_cols - 1, -1, -1):
        lines = [
            line
            for slot in grid.slots
            if slot.row >= depth and slot.col == col and slot.col_span == 1
            for line in lines_of(slot.words)
        ]
        for channel in reversed(_channels(lines, grid.height)):
            _split_at(grid, col, channel, depth)


def _channels(lines: list[list[Word]], height: float) -> list[Channel]:
    """Borders between columns, from left to right."""
    if len(lines) < MIN_LINES:
        return []
    ink = sorted((word.box.x0, word.box.x1) for line in lines for word in line)
    found: list[Channel] = []
    reach = ink[0][1]
    for x0, x1 in ink:
        if x0 - reach >= BETWEEN_VALUES * height:
            channel = Channel(reach, x0)
            start = found[-1].x1 if found else float("-inf")
            if _is_border(channel, start, lines, height):
                found.append(channel)
        reach = max(reach, x1)
    return found


def _is_border(channel: Channel, start: float, lines: list[list[Word]], height: float) -> bool:
    left = [[w for w in line if start - 0.1 <= w.box.x0 < channel.middle] for line in lines]
    right = [[w for w in line if w.box.x0 > channel.middle] for line in lines]
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a and b]
    if len(pairs) < max(MIN_LINES, TWO_SIDED * len(lines)):
        return False
    if sum(bool(_BELONGS_TO_VALUE.match(b[0].text)) for _, b in pairs) > len(pairs) / 2:
        return False
    width = (channel.x1 - channel.x0) / height
    values_right = sum(_is_value(b[0].text) for _, b in pairs) >= TWO_SIDED * len(pairs)
    values_left = sum(_is_value(words_text(a)) for a, _ in pairs) >= TWO_SIDED * len(pairs)
    return width >= WIDE or (values_right and (values_left or width >= SPACE))


def _is_value(text: str) -> bool:
    return parse_number(text) is not None or is_empty(text)


def _split_at(grid: Grid, col: int, channel: Channel, depth: int) -> None:
    """A new column right of `col`: words beyond the channel move there."""
    added: list[Slot] = []
    for slot in grid.slots:
        if slot.col > col:
            slot.col += 1
        elif slot.last_col >= col and (slot.col_span > 1 or _crosses(grid, slot, channel, depth)):
            slot.col_span += 1
        elif slot.col == col:
            beyond = [word for word in slot.words if word.box.x0 > channel.middle]
            box = slot.box
            if box:
                added.append(
                    Slot(
                        slot.row,
                        col + 1,
                        slot.row_span,
                        1,
                        words_text(beyond),
                        slot.is_header,
                        box._replace(x0=min(channel.middle, box.x1)),
                        beyond,
                    )
                )
                slot.box = box._replace(x1=max(channel.middle, box.x0))
            if beyond:
                slot.words = [word for word in slot.words if word not in beyond]
                slot.text = words_text(slot.words)
    grid.slots += added


def _crosses(grid: Grid, slot: Slot, channel: Channel, depth: int) -> bool:
    """Whether a line of the slot runs on over the channel, so that it stands over both columns."""
    for line in lines_of(slot.words):
        before = [word for word in line if word.box.x0 <= channel.middle]
        after = [word for word in line if word.box.x0 > channel.middle]
        if before and before[-1].box.x1 > channel.x1:
            return True
        if before and after and slot.row < depth - 1:
            gap = after[0].box.x0 - before[-1].box.x1
            if gap < SPACE * grid.height:
                return True
    return False


def drop_false_columns(grid: Grid, depth: int) -> None:
    """Give a column with an empty body to the one before it when a name runs on between them."""
    for col in range(grid.n_cols - 1, 0, -1):
        own = [slot for slot in grid.slots if slot.col <= col <= slot.last_col]
        body = [slot for slot in own if slot.row >= depth]
        names = [s for s in own if s.row < depth and s.text and s.col == col and s.col_span == 1]
        if not depth or any(slot.text for slot in body) or not names:
            continue
        left = [grid.at(slot.row, col - 1) for slot in names]
        if all(
            upper is not None and upper.last_col == col - 1 and _touch(upper, slot)
            for upper, slot in zip(left, names, strict=True)
        ):
            for upper, slot in zip(left, names, strict=True):
                assert upper is not None
                upper.take(slot)
                upper.col_span -= 1
                grid.slots.remove(slot)
            _drop_column(grid, col)


def _touch(left: Slot, right: Slot) -> bool:
    return any(
        abs(a.box.y0 - b.box.y0) < 0.3 * a.height and 0 <= b.box.x0 - a.box.x1 < SPACE * a.height
        for a in left.words
        for b in right.words
    )


def _drop_column(grid: Grid, col: int) -> None:
    kept = []
    for slot in grid.slots:
        if slot.col <= col <= slot.last_col:
            slot.col_span -= 1
        elif slot.col > col:
            slot.col -= 1
        if slot.col_span:
            kept.append(slot)
    grid.slots = kept
