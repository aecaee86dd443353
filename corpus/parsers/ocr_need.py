"""Whether a page needs OCR, and why: a judgement per page, never per document.

    no_text     ink on the page, and no text, or hardly any beside pictures or a scan
    garbled     text that is no language: broken fonts, wrong maps to Unicode
    poor_layer  a scan with an old OCR layer that reads badly

Everything else keeps its text. The picture of the page is asked for only where text is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from PIL import ImageDraw
from PIL.Image import Image

from corpus.parsed import Box
from corpus.parsers.boxes import area
from corpus.parsers.page_furniture import page_lines
from corpus.parsers.pdf_raw import RawPage
from corpus.parsers.text_quality import is_garbled, plausibility, readable_letters

# Share of the page that differs from its background: below it there is a speck or nothing.
MIN_INK: Final = 0.0003
INK_LEVELS: Final = 60
INK_DPI: Final = 72
# A page with fewer characters may be a scan with a stamp or a running header on it.
FEW_CHARS: Final = 200
LARGE_PICTURES: Final = 0.5  # of the page
UNREAD_INK: Final = 0.5  # of all ink
# An old OCR layer is compared with a new one when its words read worse than this, or so many of
# its letters are in words of no language.
DOUBTFUL_LAYER: Final = -3.2
READABLE_LAYER: Final = 0.75


def reason_for_ocr(page: RawPage, render: Callable[[], Image]) -> str:
    """no_text, garbled, poor_layer, or "" when the page's own text is good or nothing is on it."""
    lines = page_lines(page)
    text = "\n".join(line.text for line in lines)
    if is_garbled(text):
        return "garbled"
    n_chars = sum(1 for char in text if not char.isspace())
    if n_chars < FEW_CHARS:
        if n_chars and picture_share(page) < LARGE_PICTURES:
            return ""
        picture = render()
        ink = ink_share(picture)
        unread = ink_share(picture, [_scaled(line.box, page, picture) for line in lines])
        return "no_text" if ink >= MIN_INK and unread >= UNREAD_INK * ink else ""
    if "scanned" in page.flags and _is_poor(text):
        return "poor_layer"
    return ""


def picture_share(page: RawPage) -> float:
    """Part of the page under raster pictures; pictures over one another count twice."""
    if "scanned" in page.flags:
        return 1.0
    covered = sum(area(image.box) for image in page.images if image.kind == "raster")
    return covered / max(page.width_pt * page.height_pt, 1.0)


def ink_share(picture: Image, without: Sequence[Box] = ()) -> float:
    """Part of a page's pixels that differ from its most frequent grey; `without` are left out."""
    grey = picture.convert("L")
    histogram = grey.histogram()
    background = max(range(256), key=lambda level: histogram[level])
    if without:
        draw = ImageDraw.Draw(grey)
        for box in without:
            draw.rectangle(box, fill=background)
        histogram = grey.histogram()
    inked = sum(n for level, n in enumerate(histogram) if abs(level - background) > INK_LEVELS)
    return inked / max(grey.width * grey.height, 1)


def _scaled(box: Box, page: RawPage, picture: Image) -> Box:
    across, down = picture.width / page.width_pt, picture.height / page.height_pt
    return Box(box.x0 * across, box.y0 * down, box.x1 * across, box.y1 * down)


def _is_poor(text: str) -> bool:
    score = plausibility(text)
    if score is None:
        return False
    letters = sum(1 for char in text if char.isalpha())
    return score < DOUBTFUL_LAYER or readable_letters(text) < READABLE_LAYER * letters
