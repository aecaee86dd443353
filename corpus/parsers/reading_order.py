"""Reading order of boxes on a page: bands between full-width boxes, columns inside a band.

A box that spans most of the width (a title, a wide table) splits the page into bands; in a band,
a clear vertical gap splits columns, which are read left to right, each from top to bottom. Without
such a gap boxes are read row by row. Does not handle right-to-left pages or text around figures.
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


def sort_reading_order(items: Sequence[Item], box_of: Callable[[Item], Box]) -> list[Item]:
    """`items` as a reader would take them. Ties are broken by place, so input order is free."""
    pairs = sorted(((box_of(item), index) for index, item in enumerate(items)))
    return [items[index] for _, index in _order(pairs)]


_Pairs = list[tuple[Box, int]]


def _order(pairs: _Pairs) -> _Pairs:
    if len(pairs) < 2:
        return pairs
    region = enclose(box for box, _ in pairs)
    columns = _split_columns(pairs, region)
    if columns:
        return [pair for column in columns for pair in _order(column)]
    bands = _split_bands(pairs, region)
    if len(bands) > 1:
        return [pair for band in bands for pair in _order(band)]
    return _by_rows(pairs)


def _split_columns(pairs: _Pairs, region: Box) -> list[_Pairs] | None:
    """Left and right part at the widest gutter, or None."""
    width = region.x1 - region.x0
    best, cut = MIN_GUTTER_PT, None
    reach = region.x0
    for box, _ in sorted(pairs):
        gap = box.x0 - reach
        wide_enough = min(reach - region.x0, region.x1 - box.x0) >= MIN_COLUMN * width
        if gap > best and wide_enough:
            best, cut = gap, box.x0
        reach = max(reach, box.x1)
    if cut is None:
        return None
    left = [pair for pair in pairs if pair[0].x0 < cut]
    right = [pair for pair in pairs if pair[0].x0 >= cut]
    # One box beside one box is a row (a label and its value), not two columns.
    if max(len(left), len(right)) == 1 or not _stand_beside(left, right):
        return None
    return [left, right]


def _stand_beside(left: _Pairs, right: _Pairs) -> bool:
    """Whether the parts share half of the shorter one's height."""
    first, second = (enclose(box for box, _ in part) for part in (left, right))
    shared = min(first.y1, second.y1) - max(first.y0, second.y0)
    return shared > 0.5 * min(first.y1 - first.y0, second.y1 - second.y0)


def _split_bands(pairs: _Pairs, region: Box) -> list[_Pairs]:
    """Runs of narrow boxes, and each wide box by itself, from top to bottom."""
    width = region.x1 - region.x0
    wide = {index for box, index in pairs if box.x1 - box.x0 > WIDE * width}
    bands: list[_Pairs] = []
    run: _Pairs = []
    for pair in sorted(pairs, key=lambda pair: (_middle(pair[0]), pair)):
        if pair[1] in wide:
            bands += [run, [pair]] if run else [[pair]]
            run = []
        else:
            run.append(pair)
    return [*bands, run] if run else bands


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
