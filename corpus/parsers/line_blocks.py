"""Lines in reading order -> blocks, where the source keeps no blocks of its own."""

from __future__ import annotations

from collections.abc import Iterable

from corpus.parsers.boxes import enclose, horizontal_overlap
from corpus.parsers.pdf_raw import RawBlock, RawLine


def group_lines(lines: Iterable[RawLine]) -> list[RawBlock]:
    """Consecutive lines that stand close under one another, and are set alike."""
    groups: list[list[RawLine]] = []
    for line in lines:
        if groups and _follows(groups[-1][-1], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [RawBlock(tuple(group), enclose(line.box for line in group)) for group in groups]


def _follows(above: RawLine, below: RawLine) -> bool:
    gap = below.box.y0 - above.box.y1
    return (
        -0.5 * above.height < gap < above.size
        and abs(above.size - below.size) < 0.6
        and horizontal_overlap(above.box, below.box) > 0.3
    )
