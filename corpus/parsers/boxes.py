"""Geometry of boxes on a page."""

from __future__ import annotations

from collections.abc import Iterable

from corpus.parsed import Box


def enclose(boxes: Iterable[Box]) -> Box:
    """The smallest box around all of `boxes` (at least one)."""
    lows_x, lows_y, highs_x, highs_y = zip(*boxes, strict=True)
    return Box(min(lows_x), min(lows_y), max(highs_x), max(highs_y))


def area(box: Box) -> float:
    return max(box.x1 - box.x0, 0.0) * max(box.y1 - box.y0, 0.0)


def overlap(first: Box, second: Box) -> float:
    """Area that both cover."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def share_inside(inner: Box, outer: Box) -> float:
    """Part of `inner` that lies in `outer`, 0 to 1."""
    whole = area(inner)
    return overlap(inner, outer) / whole if whole > 0 else float(contains_centre(outer, inner))


def contains_centre(outer: Box, inner: Box) -> bool:
    x, y = (inner.x0 + inner.x1) / 2, (inner.y0 + inner.y1) / 2
    return outer.x0 <= x <= outer.x1 and outer.y0 <= y <= outer.y1


def horizontal_overlap(first: Box, second: Box) -> float:
    """Shared width over the narrower one's width, 0 to 1."""
    shared = min(first.x1, second.x1) - max(first.x0, second.x0)
    narrower = min(first.x1 - first.x0, second.x1 - second.x0)
    return max(shared, 0.0) / narrower if narrower > 0 else 0.0


def vertical_gap(first: Box, second: Box) -> float:
    """Distance between two boxes in y, 0 when they overlap in y."""
    return max(first.y0 - second.y1, second.y0 - first.y1, 0.0)
