"""Running headers, footers and page numbers: lines near a page's edge that come again and again.

A line counts as furniture when its text, digits aside, stands at the same height on at least three
nearby pages (chapter titles run only through their chapter), when it stands where most pages have
such a line, or when it is a number that grows with the page. Logos there are kept once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from corpus.parsed import Box
from corpus.parsers.pdf_raw import RawImage, RawLine, RawPage

EDGE: Final = 0.12  # of the page's height
MIN_PAGES: Final = 3
# Pages on which a line stands must be at most this many times its count apart.
SPREAD: Final = 4
# A height at which this share of the pages has furniture is furniture on the others too.
USUAL_SHARE: Final = 0.25
_HEIGHT_STEP_PT: Final = 6.0
_PAGE_NUMBER: Final = re.compile(
    r"^[\W_]*(?:page\s*)?(?:(?P<digits>\d{1,5})|(?P<roman>[ivxlc]{1,7}))"
    r"(?:\s*(?:of|/)\s*\d{1,5})?[\W_]*$",
    re.IGNORECASE,
)
_ROMAN: Final = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


class Place(NamedTuple):
    """A line: its page, and its position among the page's lines in their stored order."""

    page: int
    position: int


Furniture = dict[Place, str]


class _Edge(NamedTuple):
    """Where a line near the edge stands."""

    side: str
    height: int
    size: int


def find_furniture(pages: Iterable[RawPage]) -> Furniture:
    """Category (Header, Footer, PageNumber) of each line that is furniture."""
    texts: dict[tuple[_Edge, str], list[Place]] = defaultdict(list)
    numbers: dict[tuple[str, int], list[Place]] = defaultdict(list)
    edges: dict[_Edge, list[Place]] = defaultdict(list)
    n_pages = 0
    for page in pages:
        n_pages += 1
        for position, line in enumerate(page_lines(page)):
            edge = _edge(line, page)
            if edge is None:
                continue
            place = Place(page.page, position)
            number = page_number(line.text)
            if number is not None:
                numbers[edge.side, number - page.page].append(place)
            else:
                texts[edge, re.sub(r"\d+", "#", line.text)].append(place)
                edges[edge].append(place)
    found: Furniture = {}
    for places in numbers.values():
        if len({place.page for place in places}) >= 2:
            found.update(dict.fromkeys(places, "PageNumber"))
    usual: dict[_Edge, set[int]] = defaultdict(set)
    for (edge, _), places in texts.items():
        if _runs(sorted({place.page for place in places})):
            found.update(dict.fromkeys(places, edge.side))
            usual[edge].update(place.page for place in places)
    for edge, on_pages in usual.items():
        if len(on_pages) >= max(MIN_PAGES, USUAL_SHARE * n_pages):
            found.update(dict.fromkeys(edges[edge], edge.side))
    return found


def drop_repeated_images(pages: Sequence[RawPage]) -> tuple[list[RawPage], int]:
    """Keep a logo at the page's edge once, where it comes again on many pages.

    Returns the pages, and how many pictures were left out; the kept one names their pages.
    """
    on_pages: dict[str, list[int]] = defaultdict(list)
    for page in pages:
        for name in {image.file for image in page.images if _at_edge(image.box, page)}:
            on_pages[name].append(page.page)
    enough = max(MIN_PAGES, USUAL_SHARE * len(pages))
    repeated = {name: numbers for name, numbers in on_pages.items() if len(numbers) >= enough}
    kept = []
    for page in pages:
        images = tuple(
            _noting(image, repeated) if _at_edge(image.box, page) else image
            for image in page.images
            if not _at_edge(image.box, page)
            or repeated.get(image.file, [page.page])[0] == page.page
        )
        kept.append(replace(page, images=images))
    return kept, sum(len(page.images) for page in pages) - sum(len(page.images) for page in kept)


def _noting(image: RawImage, repeated: Mapping[str, list[int]]) -> RawImage:
    """The logo that is kept, with the other pages on which it stands."""
    return replace(image, repeated_on=tuple(repeated.get(image.file, [0])[1:]))


def _at_edge(box: Box, page: RawPage) -> bool:
    return box.y1 <= EDGE * page.height_pt or box.y0 >= (1 - EDGE) * page.height_pt


def page_lines(page: RawPage) -> list[RawLine]:
    return [line for block in page.blocks for line in block.lines]


def page_number(text: str) -> int | None:
    """The number that a line such as `12`, `- xii -` or `Page 3 of 9` states."""
    match = _PAGE_NUMBER.match(text)
    if not match:
        return None
    return int(match["digits"]) if match["digits"] else _roman(match["roman"].lower())


def _roman(letters: str) -> int:
    values = [_ROMAN[letter] for letter in letters]
    following = [*values[1:], 0]
    return sum(-v if v < after else v for v, after in zip(values, following, strict=True))


def _edge(line: RawLine, page: RawPage) -> _Edge | None:
    height = round(line.box.y0 / _HEIGHT_STEP_PT)
    if line.box.y1 <= EDGE * page.height_pt:
        return _Edge("Header", height, round(line.size))
    if line.box.y0 >= (1 - EDGE) * page.height_pt:
        return _Edge("Footer", height, round(line.size))
    return None


def _runs(numbers: list[int]) -> bool:
    return len(numbers) >= MIN_PAGES and numbers[-1] - numbers[0] <= SPREAD * len(numbers)
