"""Captions of figures and tables on a PDF page, and the object that each belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from corpus.parsed import Box
from corpus.parsers.boxes import horizontal_overlap, vertical_gap

MAX_CHARS: Final = 400
MAX_GAP_PT: Final = 60.0
# "Figure 3: ..." and "Table 2-1 Registers", but not "Figure 3 shows ...".
_CAPTION: Final = re.compile(
    r"^(?P<kind>fig(?:ure|\.)?|illustration|diagram|chart|table)\s*"
    r"(?P<number>[A-Z]?[-.]?\d+(?:[-.–]\d+)*[a-z]?|[IVXLC]+)"
    r"(?=\s*[.:—–|)-]|\s|$)",
    re.IGNORECASE,
)


def caption_kind(text: str) -> str:
    """`figure`, `table`, or "" when the text is no caption."""
    match = _CAPTION.match(text)
    if not match or len(text) > MAX_CHARS:
        return ""
    after = text[match.end() :].lstrip()
    if after and after[0].islower():
        return ""
    return "table" if match["kind"].lower() == "table" else "figure"


def match_captions(captions: Sequence[Box], objects: Sequence[Box]) -> dict[int, int]:
    """Object -> caption, nearest first. One caption may serve objects that stand side by side."""
    distances = sorted(
        (vertical_gap(caption, target), number, item)
        for number, caption in enumerate(captions)
        for item, target in enumerate(objects)
        if vertical_gap(caption, target) <= MAX_GAP_PT and horizontal_overlap(caption, target) > 0
    )
    chosen: dict[int, int] = {}
    served: dict[int, list[int]] = {}
    for _, number, item in distances:
        if item in chosen:
            continue
        others = [objects[other] for other in served.get(number, ())]
        if all(_side_by_side(objects[item], other) for other in others):
            chosen[item] = number
            served.setdefault(number, []).append(item)
    return chosen


def _side_by_side(first: Box, second: Box) -> bool:
    return vertical_gap(first, second) == 0 and horizontal_overlap(first, second) < 0.2
