"""A detected table as a grid that can be mended: cells with the words that stand in them.

In: cells from a detector, the page's words, and its ruling lines, all in points of the page as
shown. The mending steps (`table_columns`, `table_header_spans`, `table_rows`) change a `Grid` in
place; `cells` gives the result. Text of a cell that no step touches stays as the detector gave it.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from corpus.parsed import Box, ParsedCell
from corpus.parsers.boxes import enclose

# A space inside a line is about 0.3 of the height of its words; columns are further apart.
SPACE: Final = 0.5
# Lines of one paragraph are closer than this, in heights of a word.
LEADING: Final = 0.8
FULL_WIDTH: Final = 0.9  # of the table: such a rule parts rows and says nothing about columns
_RULE_GAP_PT: Final = 3.0
_BAND_PT: Final = 20.0
_DRAWN_WITH_DASHES: Final = re.compile(r"[-_=–—]{4,}")


class Word(NamedTuple):
    text: str
    box: Box

    @property
    def height(self) -> float:
        return self.box.y1 - self.box.y0


class Rule(NamedTuple):
    """A horizontal ruling line."""

    x0: float
    x1: float
    y: float


@dataclass(eq=False)
class Slot:
    """A cell while it is being mended."""

    row: int
    col: int
    row_span: int
    col_span: int
    text: str
    is_header: bool
    box: Box | None
    words: list[Word] = field(default_factory=list)

    @property
    def last_row(self) -> int:
        return self.row + self.row_span - 1

    @property
    def last_col(self) -> int:
        return self.col + self.col_span - 1

    def take(self, other: Slot) -> None:
        """Add the place and the words of a neighbour; the order of reading is kept."""
        self.words = in_reading_order([*self.words, *other.words])
        first, second = sorted((self, other), key=lambda s: (s.top, s.row, s.col))
        if self.words:
            self.text = words_text(self.words)
        else:
            self.text = " ".join(text for text in (first.text, second.text) if text)
        last_row, last_col = (
            max(self.last_row, other.last_row),
            max(self.last_col, other.last_col),
        )
        self.row, self.col = min(self.row, other.row), min(self.col, other.col)
        self.row_span, self.col_span = last_row - self.row + 1, last_col - self.col + 1
        boxes = [box for box in (self.box, other.box) if box]
        self.box = enclose(boxes) if boxes else None

    @property
    def top(self) -> float:
        return min((word.box.y0 for word in self.words), default=self.box.y0 if self.box else 0.0)

    @property
    def bottom(self) -> float:
        return max((word.box.y1 for word in self.words), default=self.box.y1 if self.box else 0.0)


class Grid:
    """The slots of one table, its words, and the rules across it."""

    def __init__(
        self, cells: Iterable[ParsedCell], words: Sequence[Word], rules: Sequence[Rule]
    ) -> None:
        self.slots = [
            Slot(c.row, c.col, c.row_span, c.col_span, c.text, c.is_header, c.bbox_pt)
            for c in cells
        ]
        drawn = [word for word in words if _DRAWN_WITH_DASHES.fullmatch(word.text)]
        dashes = [Rule(w.box.x0, w.box.x1, (w.box.y0 + w.box.y1) / 2) for w in drawn]
        self.box = enclose(s.box for s in self.slots if s.box)
        self.rules = merge_rules([*rules, *dashes], self.box)
        self._assign([word for word in words if word not in drawn])
        self._drop_drawn_rules()
        self.height = median([w.height for s in self.slots for w in s.words] or [10.0])

    def _assign(self, words: Sequence[Word]) -> None:
        bands: dict[int, list[Slot]] = defaultdict(list)
        for slot in self.slots:
            if slot.box:
                for band in range(int(slot.box.y0 // _BAND_PT), int(slot.box.y1 // _BAND_PT) + 1):
                    bands[band].append(slot)
        for word in words:
            x, y = (word.box.x0 + word.box.x1) / 2, (word.box.y0 + word.box.y1) / 2
            for slot in bands.get(int(y // _BAND_PT), ()):
                box = slot.box
                if box and box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1:
                    slot.words.append(word)
                    break
        for slot in self.slots:
            own = "".join(slot.text.split())
            slot.words = in_reading_order(slot.words)
            # Turned text, or words that another cell claimed: not ours to rearrange.
            if sorted(own) != sorted("".join(w.text for w in slot.words)):
                slot.words = []

    def _drop_drawn_rules(self) -> None:
        """Rules that are typed as dashes are no text, nor do they make a row."""
        drawn = [s for s in self.slots if _DRAWN_WITH_DASHES.fullmatch(s.text.replace(" ", ""))]
        for slot in drawn:
            slot.text, slot.words = "", []
        for row in sorted({slot.row for slot in drawn}, reverse=True):
            if not any(slot.text for slot in self.slots if slot.row <= row <= slot.last_row):
                self.drop_row(row)

    @property
    def n_rows(self) -> int:
        return max((slot.row + slot.row_span for slot in self.slots), default=0)

    @property
    def n_cols(self) -> int:
        return max((slot.col + slot.col_span for slot in self.slots), default=0)

    def filled(self, row: int) -> list[Slot]:
        """Slots with text that begin in `row`, from left to right."""
        found = (slot for slot in self.slots if slot.row == row and slot.text)
        return sorted(found, key=lambda slot: slot.col)

    def at(self, row: int, col: int) -> Slot | None:
        """The slot that covers a position."""
        for slot in self.slots:
            if slot.row <= row <= slot.last_row and slot.col <= col <= slot.last_col:
                return slot
        return None

    def is_free(self, row: int, col: int) -> bool:
        """Nothing is written at this position."""
        slot = self.at(row, col)
        return slot is None or (not slot.text and slot.row_span == slot.col_span == 1)

    def clear(self, rows: range, cols: range, keep: Slot) -> None:
        """Drop the empty slots in a rectangle that `keep` now covers."""
        self.slots = [
            slot
            for slot in self.slots
            if slot is keep or slot.text or not (slot.row in rows and slot.col in cols)
        ]

    def row_edges(self, row: int) -> tuple[float, float] | None:
        """Top and bottom of the text that begins in `row` and ends there."""
        own = [s for s in self.filled(row) if s.row_span == 1 and (s.words or s.box)]
        return (min(s.top for s in own), max(s.bottom for s in own)) if own else None

    def column_edges(self, first_row: int = 0) -> list[tuple[float, float]]:
        """Left and right end of what is written in each column alone, from `first_row` on."""
        edges = []
        for col in range(self.n_cols):
            own = [s for s in self.slots if s.col == col and s.col_span == 1]
            words = [w.box for s in own if s.row >= first_row for w in s.words]
            boxes = words or [w.box for s in own for w in s.words] or [s.box for s in own if s.box]
            edges.append(
                (min(b.x0 for b in boxes), max(b.x1 for b in boxes)) if boxes else (0.0, 0.0)
            )
        return edges

    def rules_between(self, top: float, bottom: float) -> list[Rule]:
        """Rules below `top` and above `bottom`, some room for rules that touch the text."""
        room = 0.25 * self.height
        return [rule for rule in self.rules if top - room <= rule.y <= bottom + room]

    def is_full(self, rule: Rule) -> bool:
        width = self.box.x1 - self.box.x0
        return min(rule.x1, self.box.x1) - max(rule.x0, self.box.x0) >= FULL_WIDTH * width

    def drop_row(self, row: int) -> None:
        """Take a row out: what spans it gets shorter, what begins in it moves to the next."""
        kept = []
        for slot in self.slots:
            if slot.row <= row <= slot.last_row:
                slot.row_span -= 1
            elif slot.row > row:
                slot.row -= 1
            if slot.row_span:
                kept.append(slot)
        self.slots = kept

    def cells(self) -> tuple[ParsedCell, ...]:
        ordered = sorted(self.slots, key=lambda slot: (slot.row, slot.col))
        return tuple(
            ParsedCell(s.row, s.col, s.text, s.row_span, s.col_span, s.is_header, s.box)
            for s in ordered
        )


def in_reading_order(words: Iterable[Word]) -> list[Word]:
    return [word for line in lines_of(words) for word in line]


def lines_of(words: Iterable[Word]) -> list[list[Word]]:
    """Words by line, from top to bottom, each line from left to right."""
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda w: (w.box.y0 + w.box.y1, w.box.x0)):
        middle = (word.box.y0 + word.box.y1) / 2
        if lines and middle - _middle(lines[-1]) < 0.5 * word.height:
            lines[-1].append(word)
        else:
            lines.append([word])
    return [sorted(line, key=lambda w: (w.box.x0, w.box.y0, w.text)) for line in lines]


def _middle(line: Sequence[Word]) -> float:
    return (line[0].box.y0 + line[0].box.y1) / 2


def words_text(words: Iterable[Word]) -> str:
    return " ".join(word.text for word in words)


def merge_rules(rules: Iterable[Rule], box: Box) -> list[Rule]:
    """Rules that cross the table, pieces at one height that touch made one."""
    inside = sorted(
        (rule for rule in rules if box.y0 - 6 <= rule.y <= box.y1 + 6 and rule.x1 > box.x0),
        key=lambda rule: (rule.y, rule.x0),
    )
    merged: list[Rule] = []
    for _, group in itertools.groupby(_levelled(inside), key=lambda rule: rule.y):
        for rule in sorted(group):
            last = merged[-1] if merged else None
            if last and last.y == rule.y and rule.x0 - last.x1 <= _RULE_GAP_PT:
                merged[-1] = Rule(last.x0, max(last.x1, rule.x1), last.y)
            else:
                merged.append(rule)
    return merged


def _levelled(rules: Iterable[Rule]) -> Iterable[Rule]:
    """Heights that differ by a line's width are one height."""
    level = float("-inf")
    for rule in rules:
        if rule.y - level > 1.5:
            level = rule.y
        yield rule._replace(y=level)
