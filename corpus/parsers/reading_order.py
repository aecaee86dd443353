"""Reading order of boxes on a page: columns at a gutter, bands between what crosses it, then rows.

A gutter is a vertical gap that little crosses. What does cross it (a title, a wide table) cuts the
page into bands; in each band the columns are read left to right, each from top to bottom. Without
a gutter, boxes that span most of the width make the bands, and the rest is read row by row. Does
not handle right-to-left pages or text around figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from corpus.parsed import Box
from corpus.parsers.boxes import enclose

Item = TypeVar("Item")

WIDE: Final = 0.62  # of the region: wider boxes split it into bands
MIN_COLUMN: Final = 0.2  # of the region: narrower sides are list markers or margin notes
MIN_GUTTER_PT: Final = 8.0
MAX_CROSSING: Final = 0.25  # of all boxes' height


def sort_reading_order(items: Sequence[Item], box_of: Callable[[Item], Box]) -> list[Item]:
    """`items` as a reader would take them. Ties are broken by place, so input order is free."""
    pairs = sorted(((box_of(item), index) for index, item in enumerate(items)))
    return [items[index] for _, index in _order(pairs)]


_Pairs = list[tuple[Box, int]]


def _order(pairs: _Pairs) -> _Pairs:
    if len(pairs) < 2:
        return pairs
    region = enclose(box for box, _ in pairs)
    gutter = _find_gutter(pairs, region)
    if gutter is not None:
        crossing = {index for box, index in pairs if box.x0 < gutter < box.x1}
        return [pair for band in _bands(pairs, crossing) for pair in _order_band(band, gutter)]
    width = region.x1 - region.x0
    wide = {index for box, index in pairs if box.x1 - box.x0 > WIDE * width}
    bands = _bands(pairs, wide)
    if len(bands) > 1:
        return [pair for band in bands for pair in _order(band)]
    return _by_rows(pairs)


def _order_band(band: _Pairs, gutter: float) -> _Pairs:
    left = [pair for pair in band if pair[0].x1 <= gutter]
    right = [pair for pair in band if pair[0].x0 >= gutter]
    if len(left) + len(right) < len(band):  # a single box across the gutter
        return band
    return [*_order(left), *_order(right)]


def _find_gutter(pairs: _Pairs, region: Box) -> float | None:
    """Where the fewest boxes cross between two columns, None when there are no columns."""
    margin = MIN_COLUMN * (region.x1 - region.x0)
    most = MAX_CROSSING * sum(_height(box) for box, _ in pairs)
    best: tuple[float, float, float] | None = None
    for edge in sorted({box.x0 for box, _ in pairs}):
        if not region.x0 + margin <= edge <= region.x1 - margin:
            continue
        left = [pair for pair in pairs if pair[0].x1 <= edge - MIN_GUTTER_PT]
        right = [pair for pair in pairs if pair[0].x0 >= edge]
        crossing = sum(_height(box) for box, _ in pairs) - sum(
            _height(box) for box, _ in (*left, *right)
        )
        if crossing > most or not _are_columns(left, right, margin):
            continue
        reach = max(box.x1 for box, _ in left)
        found = (crossing, reach - edge, (reach + edge) / 2)
        best = min(best, found) if best else found
    return best[2] if best else None


def _are_columns(left: _Pairs, right: _Pairs, margin: float) -> bool:
    # One box beside one box is a row (a label and its value), not two columns.
    if not left or not right or max(len(left), len(right)) == 1:
        return False
    first, second = (enclose(box for box, _ in part) for part in (left, right))
    if min(first.x1 - first.x0, second.x1 - second.x0) < margin:
        return False
    shared = min(first.y1, second.y1) - max(first.y0, second.y0)
    return shared > 0.5 * min(_height(first), _height(second))


def _bands(pairs: _Pairs, separators: set[int]) -> list[_Pairs]:
    """Runs between separators, and each separator by itself, from top to bottom."""
    bands: list[_Pairs] = []
    run: _Pairs = []
    for pair in sorted(pairs, key=lambda pair: (_middle(pair[0]), pair)):
        if pair[1] in separators:
            bands += [run, [pair]] if run else [[pair]]
            run = []
        else:
            run.append(pair)
    return [*bands, run] if run else bands


def _height(box: Box) -> float:
    return box.y1 - box.y0


def _middle(box: Box) -> float:
    return (box.y0 + box.y1) / 2


def _by_rows(pairs: _Pairs) -> _Pairs:
    """Top to bottom; boxes whose middles lie within one another's height share a row."""
    rows: list[_Pairs] = []
    for pair in sorted(pairs, key=lambda pair: (pair[0].y0, pair)):
        box = pair[0]
        if rows and rows[-1][0][0].y0 <= _middle(box) <= rows[-1][0][0].y1:
            rows[-1].append(pair)
        else:
            rows.append([pair])
    return [pair for row in rows for pair in sorted(row)]
