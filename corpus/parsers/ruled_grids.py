"""Whether the rules of a page can form a grid of cells, told from its vector paths alone.

MuPDF's search for ruled tables takes the page's text apart character by character first, 0.07 s a
page; most pages with rules have none but a line under their header, a frame, or underlines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

# MuPDF takes edges that lie closer than 3 pt for one, and lets them miss each other by 3 pt.
_SNAP_PT: Final = 3.0
_REACH_PT: Final = 2 * _SNAP_PT


class _Edge(NamedTuple):
    """Axis-parallel rules taken for one: where across their direction, and from where to where."""

    low: float
    high: float
    start: float
    end: float

    def meets_between_ends(self, other: _Edge) -> bool:
        """Whether `other`, which runs across, touches this edge away from this edge's ends."""
        between = self.start + _SNAP_PT < other.high and other.low < self.end - _SNAP_PT
        return between and (
            other.start <= self.high + _REACH_PT and self.low - _REACH_PT <= other.end
        )


def may_hold_grid(drawings: Sequence[Mapping[str, Any]]) -> bool:
    """False when no rule meets another one between its ends, as two columns or rows need.

    `drawings` are MuPDF's vector paths of the page.
    """
    rows: list[_Edge] = []
    columns: list[_Edge] = []
    for x0, y0, x1, y1 in _rules(drawings):
        if y1 - y0 <= _SNAP_PT:
            rows.append(_Edge(y0, y1, x0, x1))
        if x1 - x0 <= _SNAP_PT:
            columns.append(_Edge(x0, x1, y0, y1))
    return any(
        row.meets_between_ends(column) or column.meets_between_ends(row)
        for row, column in itertools.product(_joined(rows), _joined(columns))
    )


def _rules(drawings: Iterable[Mapping[str, Any]]) -> Iterator[tuple[float, float, float, float]]:
    """Lines, and the sides of boxes, as x0, y0, x1, y1."""
    for path in drawings:
        items = path["items"]
        for item in items:
            if item[0] == "l":
                yield _ordered(*item[1], *item[2])
            elif item[0] == "re":
                yield from _sides(*_ordered(*item[1]))
            elif item[0] == "qu":
                corners = [item[1][0], item[1][1], item[1][3], item[1][2]]
                for one, other in itertools.pairwise([*corners, corners[0]]):
                    yield _ordered(*one, *other)
        if path.get("closePath") and items[0][0] == "l" == items[-1][0]:
            yield _ordered(*items[-1][2], *items[0][1])


def _ordered(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _sides(
    x0: float, y0: float, x1: float, y1: float
) -> Iterator[tuple[float, float, float, float]]:
    yield x0, y0, x1, y0
    yield x0, y1, x1, y1
    yield x0, y0, x0, y1
    yield x1, y0, x1, y1


def _joined(edges: Iterable[_Edge]) -> list[_Edge]:
    """Pieces of one rule, side by side or one after the other, as one edge."""
    level: list[_Edge] = []
    joined: list[_Edge] = []
    for edge in sorted(edges):
        if level and edge.low > level[-1].high + _SNAP_PT:
            joined += _chained(level)
            level = []
        level.append(edge)
    return joined + _chained(level)


def _chained(level: list[_Edge]) -> list[_Edge]:
    chained: list[_Edge] = []
    for edge in sorted(level, key=lambda edge: edge.start):
        if chained and edge.start <= chained[-1].end + _REACH_PT:
            last = chained.pop()
            low, high = min(last.low, edge.low), max(last.high, edge.high)
            edge = _Edge(low, high, last.start, max(last.end, edge.end))
        chained.append(edge)
    return chained
