"""OCR of one picture: skew, orientation, Tesseract, and RapidOCR where Tesseract is not convincing.

    reading = recognise(picture, dpi, engines(options))

The picture is made straight (a page 2 degrees askew came out of Tesseract in pieces, with 57 % of
its characters wrong or misplaced) and read as it lies; when that convinces (mean confidence,
horizontal words, letters that make up words) nothing more is done, as for most scans. Otherwise
Tesseract's orientation model is asked, or, where it cannot tell, the other three directions are
tried, and at last the second engine. The most worthwhile reading wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from PIL import Image as pillow
from PIL.Image import Image

from corpus.parsed import ParseOptions
from corpus.parsers import ocr_rapidocr, ocr_tesseract
from corpus.parsers.ocr_lines import OcrEngine, Reading
from corpus.parsers.ocr_setup import ENGINES
from corpus.parsers.skew import find_skew, straighten

# Another direction or engine must be this much better than what is already there.
MARGIN: Final = 1.2
_TURNED: Final = {
    90: pillow.Transpose.ROTATE_270,
    180: pillow.Transpose.ROTATE_180,
    270: pillow.Transpose.ROTATE_90,
}


def engines(options: ParseOptions) -> list[OcrEngine]:
    """The engines of `options.ocr_engine`, the first opinion first."""
    made: list[OcrEngine] = []
    for name in ENGINES[options.ocr_engine]:
        tesseract = name == "tesseract"
        made.append(
            ocr_tesseract.Tesseract(options.ocr_languages) if tesseract else ocr_rapidocr.Rapidocr()
        )
    return made


def recognise(
    picture: Image, dpi: int, readers: Sequence[OcrEngine], *, askew: bool = True
) -> Reading:
    """The best reading of a picture, which lies straight unless `askew`. Raises `OcrError`."""
    grey = picture.convert("L")
    skew = find_skew(grey) if askew else 0.0
    grey = straighten(grey, skew)
    first, *others = readers
    best = _read_upright(grey, dpi, first)
    for engine in others:
        if not best.is_convincing:
            best = _better(best, _read(grey, dpi, engine, best.turn))
    return replace(best, skew=skew)


def _read_upright(picture: Image, dpi: int, engine: OcrEngine) -> Reading:
    best = _read(picture, dpi, engine, 0)
    if best.is_convincing:
        return best
    turn = engine.orientation(picture, dpi)
    if turn == 0 and not best.is_sideways:
        return best
    # Turned lines are read, too, so only for them both quarters come before the half turn.
    order = (90, 270, 180) if best.is_sideways else (180, 90, 270)
    for other in (turn,) if turn else order:
        best = _better(best, _read(picture, dpi, engine, other))
        if best.is_convincing:
            break
    return best


def _read(picture: Image, dpi: int, engine: OcrEngine, turn: int) -> Reading:
    turned = picture.transpose(_TURNED[turn]) if turn else picture
    return Reading(tuple(engine.read(turned, dpi)), turn, engine.name)


def _better(known: Reading, other: Reading) -> Reading:
    if known.is_sideways != other.is_sideways:
        return other if known.is_sideways and other.worth > 0 else known
    return other if other.worth > MARGIN * max(known.worth, 1.0) else known
