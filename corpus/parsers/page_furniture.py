"""Running headers, footers and page numbers: lines near a page's edge that come again and again.

A line counts as furniture when its text, digits aside, stands at the same height on at least three
nearby pages (chapter titles run only through their chapter), or when it is a page number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from corpus.parsers.pdf_raw import RawLine, RawPage

EDGE: Final = 0.12  # of the page's height
MIN_PAGES: Final = 3
# Pages on which a line stands must be at most this many times its count apart.
SPREAD: Final = 4
_HEIGHT_STEP_PT: Final = 6.0
_PAGE_NUMBER: Final = re.compile(
    r"^[\W_]*(?:page\s*)?(?:\d{1,5}|[ivxlc]{1,7})(?:\s*(?:of|/)\s*\d{1,5})?[\W_]*$", re.IGNORECASE
)

# (page, position among the page's lines) -> category
Furniture = dict[tuple[int, int], str]


def find_furniture(pages: Iterable[RawPage]) -> Furniture:
    """Category (Header, Footer, PageNumber) of each line that is furniture.

    Positions count through the page's blocks and lines in their stored order.
    """
    places: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    found: Furniture = {}
    for page in pages:
        for position, line in enumerate(page_lines(page)):
            side = _side(line, page)
            if not side:
                continue
            if _PAGE_NUMBER.match(line.text):
                found[page.page, position] = "PageNumber"
                continue
            key = (side, re.sub(r"\d+", "#", line.text), round(line.box.y0 / _HEIGHT_STEP_PT))
            places[key].append((page.page, position))
    for (side, _, _), where in places.items():
        if _runs(sorted({page for page, _ in where})):
            found.update(dict.fromkeys(where, side))
    return found


def page_lines(page: RawPage) -> list[RawLine]:
    return [line for block in page.blocks for line in block.lines]


def _side(line: RawLine, page: RawPage) -> str:
    if line.box.y1 <= EDGE * page.height_pt:
        return "Header"
    if line.box.y0 >= (1 - EDGE) * page.height_pt:
        return "Footer"
    return ""


def _runs(numbers: list[int]) -> bool:
    return len(numbers) >= MIN_PAGES and numbers[-1] - numbers[0] <= SPREAD * len(numbers)
