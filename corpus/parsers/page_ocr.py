"""OCR as a step of the page ladder: a page as read -> the same page with recognised lines.

In: an open document and a page that its backend has read. Out: the page with OCR lines in points,
laid upright when it lay sideways, upside down or askew (its picture, too), with tables found among
them where the backend can. Flags: `ocr`, `ocr_garbled` or `ocr_poor_layer` (why its own text was
replaced), `rotated_scan_90` and `straightened_1.5` (degrees clockwise that it was turned),
`ocr_low_confidence`, `ocr_unavailable` (wanted, but no engine is installed), `ocr_no_text` (nothing
better was found) and `blank`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corpus.parsed import Box, ParseOptions
from corpus.parsers.boxes import contains_centre, enclose
from corpus.parsers.line_blocks import group_lines
from corpus.parsers.ocr import engines, recognise
from corpus.parsers.ocr_lines import DOUBTFUL, OcrError, OcrLine, Reading, type_sizes
from corpus.parsers.ocr_need import (
    INK_DPI,
    MIN_INK,
    ink_share,
    picture_share,
    reason_for_ocr,
)
from corpus.parsers.page_furniture import page_lines
from corpus.parsers.page_size import fit_dpi
from corpus.parsers.pdf_raw import (
    AS_SHOWN,
    PageFiles,
    PdfDocument,
    Pose,
    RawBlock,
    RawImage,
    RawLine,
    RawPage,
)
from corpus.parsers.table_grid import Word
from corpus.parsers.text_quality import readable_letters
from corpus.step_clock import CLOCK
from workspace.errors import UserError

# Finer pictures cost time and read no better.
MAX_PIXELS: Final = 16_000_000
LOW_CONFIDENCE: Final = 0.7
# Less than this on average is noise in a photograph.
MIN_CONFIDENCE: Final = 0.4
MIN_LETTERS: Final = 3
# A new reading replaces text only when it has so many times the readable letters.
BETTER: Final = 1.2
WHOLE_PAGE: Final = 0.85


def with_ocr(
    document: PdfDocument, page: RawPage, files: PageFiles, options: ParseOptions
) -> RawPage:
    """`page`, or what OCR makes of it where its own text is missing or bad."""
    if options.ocr == "off" or page.width_pt <= 0 or page.height_pt <= 0:
        return page
    reason = reason_for_ocr(page, lambda: document.render(page.page, INK_DPI))
    if options.ocr == "force":
        reason = reason or "forced"
    if not reason:
        return _flagged(page, "blank") if _is_blank(document, page) else page
    if options.ocr_engine == "none":
        return _flagged(page, "ocr_unavailable")
    dpi = round(
        fit_dpi(
            page.width_pt,
            page.height_pt,
            options.ocr_dpi,
            min(MAX_PIXELS, options.max_page_pixels),
        )
    )
    try:
        with CLOCK.measure("ocr"):
            picture = document.render(page.page, dpi)
            reading = recognise(picture, dpi, engines(options), askew=_is_scan(page))
    except (OcrError, UserError) as error:  # UserError: Tesseract does not even state its version
        return replace(
            page,
            flags=(*page.flags, "ocr_error"),
            fault_stage="ocr",
            fault_reason="ocr_error",
            fault_detail=str(error)[:1000],
        )
    if not _is_improvement(page, reading, reason):
        return _flagged(page, "ocr_no_text")
    pose = Pose(reading.turn, reading.skew)
    if pose != AS_SHOWN:
        page = document.read_page(page.page, files, pose)
    return _with_reading(document, page, reading, reason, 72 / dpi)


def _is_blank(document: PdfDocument, page: RawPage) -> bool:
    return not page_lines(page) and ink_share(document.render(page.page, INK_DPI)) < MIN_INK


def _is_scan(page: RawPage) -> bool:
    """Whether the page is one picture; what is typeset lies straight."""
    return picture_share(page) >= WHOLE_PAGE or any(i.kind == "frame" for i in page.images)


def _flagged(page: RawPage, *flags: str) -> RawPage:
    return replace(page, flags=(*page.flags, *flags))


def _is_improvement(page: RawPage, reading: Reading, reason: str) -> bool:
    letters = sum(1 for char in reading.text if char.isalnum())
    if letters < MIN_LETTERS or reading.confidence < MIN_CONFIDENCE:
        return False
    if reason == "no_text":
        return True
    own = "\n".join(line.text for line in page_lines(page))
    known = 0 if reason == "garbled" else readable_letters(own)
    return readable_letters(reading.text) >= BETTER * known


def _with_reading(
    document: PdfDocument, page: RawPage, reading: Reading, reason: str, points_per_pixel: float
) -> RawPage:
    kept: tuple[RawBlock, ...] = page.blocks if reason == "no_text" else ()
    own = [line.box for block in kept for line in block.lines]
    sizes = type_sizes(reading.lines)
    placed = [
        (line.block, raw)
        for line, size in zip(reading.lines, sizes, strict=True)
        if (raw := _raw_line(line, size, points_per_pixel))
        and not any(contains_centre(box, raw.box) for box in own)
    ]
    blocks = (*kept, *_blocks(placed))
    words = [
        Word(word.text, _to_points(word.box, points_per_pixel))
        for line in reading.lines
        for word in line.words
    ]
    with CLOCK.measure("tables"):
        pose = Pose(reading.turn, reading.skew)
        tables = document.find_tables(page.page, words, pose)
    why = () if reason in ("no_text", "forced") else (f"ocr_{reason}",)
    turned = (f"rotated_scan_{reading.turn}",) if reading.turn else ()
    straight = (f"straightened_{reading.skew:g}",) if reading.skew else ()
    low = ("ocr_low_confidence",) if reading.confidence < LOW_CONFIDENCE else ()
    return replace(
        page,
        blocks=blocks,
        images=_without_scan(page),
        tables=tables,
        ocr_engine=reading.engine,
        flags=(*page.flags, "ocr", *why, *turned, *straight, *low),
    )


def _raw_line(line: OcrLine, size: float, points_per_pixel: float) -> RawLine | None:
    """None for a line of nothing but doubtful marks: frames and specks read as `|` and `.`."""
    words = [w for w in line.words if w.confidence >= DOUBTFUL or any(map(str.isalnum, w.text))]
    if not words:
        return None
    return RawLine(
        text=" ".join(word.text for word in words),
        box=_to_points(enclose(word.box for word in words), points_per_pixel),
        size=round(size * points_per_pixel, 1),
    )


def _blocks(placed: Sequence[tuple[int, RawLine]]) -> list[RawBlock]:
    """The engine's blocks, cut and joined by spacing and size."""
    by_block: dict[int, list[RawLine]] = {}
    for number, line in placed:
        by_block.setdefault(number, []).append(line)
    if all(len(lines) == 1 for lines in by_block.values()):
        return group_lines([line for _, line in placed])
    return [block for lines in by_block.values() for block in group_lines(lines)]


def _without_scan(page: RawPage) -> tuple[RawImage, ...]:
    """Strips that make up the page together are its scan, not pictures on it."""
    return () if picture_share(page) >= WHOLE_PAGE else page.images


def _to_points(box: Box, points_per_pixel: float) -> Box:
    return Box(*(round(value * points_per_pixel, 2) for value in box))
