"""Captions in formats without geometry: "Table 3: ..." or "Figure 2. ..." beside its object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corpus.parsed import ParsedElement

_CAPTION: Final = re.compile(
    r"(?P<kind>table|tab\.|figure|fig\.|image)\s*(?:\d+|[A-Z]\b|[IVX]+\b)[-.\d]*\s*[:.—–-]?\s*\S",
    re.IGNORECASE,
)
_MAX_CHARS: Final = 300
_TABLE_KINDS: Final = ("table", "tab.")
_FIGURE_KINDS: Final = ("figure", "fig.", "image")


def attach_captions(elements: Sequence[ParsedElement]) -> list[ParsedElement]:
    """Give each uncaptioned table and image the caption next to it.

    A table's caption is looked for above it first, a figure's below. A caption belongs to one
    table, but figures side by side share theirs. Figure captions become FigureCaption.
    """
    result = list(elements)
    used: set[int] = set()
    for index, element in enumerate(result):
        if element.table is not None and not element.table.caption:
            found = _beside(result, index, (-1, 1), _TABLE_KINDS, used)
            if found is not None:
                used.add(found)
                table = replace(element.table, caption=result[found].text)
                result[index] = replace(element, table=table)
        elif element.image is not None and not _CAPTION.match(element.image.caption):
            found = _beside(result, index, (1, -1), _FIGURE_KINDS, used)
            if found is not None:
                result[found] = replace(result[found], category="FigureCaption", level=0)
                image = replace(element.image, caption=result[found].text)
                result[index] = replace(element, image=image)
    return result


def _beside(
    elements: list[ParsedElement],
    index: int,
    sides: tuple[int, ...],
    kinds: tuple[str, ...],
    used: set[int],
) -> int | None:
    """Index of the caption next to `index`; images may lie between."""
    for side in sides:
        place = index + side
        while 0 <= place < len(elements) and elements[place].image is not None:
            place += side
        if not 0 <= place < len(elements) or place in used:
            continue
        neighbour = elements[place]
        match = _CAPTION.match(neighbour.text)
        is_text = neighbour.table is None and len(neighbour.text) <= _MAX_CHARS
        if match and is_text and match["kind"].lower() in kinds:
            return place
    return None
